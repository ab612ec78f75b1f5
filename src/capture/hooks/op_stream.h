// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "capture/compat/at_every_op.h"
#include "capture/modules/module_activity.h"
#include "core/events/ids.h"
#include "core/events/op_call.h"
#include "tidegauge/export.h"

/// Notifies op listeners of each op with the shapes of its arguments and results: real, simulated
/// and fake ops alike. Only the outermost op counts, as for storages (op_watch.h).
///
/// Without a listener an op with boxed arguments reads one number more, and an op with a typed
/// handler (capture/fast) none. With a listener, all ops take the boxed path.
namespace tidegauge::op_stream {

/// The words that describe a call: equal calls have equal words. They point to the schema of the
/// op, so they are valid as long as its library is loaded.
using Words = c10::SmallVector<int64_t, 96>;
TIDEGAUGE_API OpCall read_call(std::span<const int64_t> words);

/// Called with the lock of the listeners held, in any thread that is observed. Must not run an op,
/// take the GIL, or add or remove listeners.
class OpListener {
 public:
  virtual void op_ran(std::span<const int64_t> words, uint8_t facts, uint16_t stream) = 0;
  virtual void event_recorded(uint32_t event, uint16_t stream) = 0;
  virtual void event_awaited(uint32_t event, uint16_t stream) = 0;
  virtual void module_moved(ModuleId module, const std::string& name, bool enters) = 0;
  /// The FakeTensorMode whose ops it wants. Compared, never dereferenced.
  const void* fake_mode() const { return fake_mode_; }

 protected:
  ~OpListener() = default;
  const void* fake_mode_ = nullptr;
};

void add(OpListener* listener);
void remove(OpListener* listener);
inline bool has_listeners() {
  return at_every_op.op_listeners.load(std::memory_order_relaxed) != 0;
}
bool has_listener_in(const void* fake_mode);

/// An event of a device. `record_event` returns its number, from 1.
uint32_t record_event(uint16_t stream);
void await_event(uint32_t event, uint16_t stream);
/// A module begins or ends its forward, backward or recompute in this thread.
void report_move(const ModuleActivity& modules, ModuleId module, bool enters);
inline void move_module(const ModuleActivity& modules, ModuleId module, bool enters) {
  if (has_listeners()) [[unlikely]]
    report_move(modules, module, enters);
}

/// One op from before to after its run. Never throws; our own failures are counted.
class Call {
 public:
  Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) noexcept;
  void finish(const torch::jit::Stack& stack, uint8_t facts, const void* fake_mode) noexcept;

 private:
  const c10::FunctionSchema& schema_;
  Words words_;
  bool is_valid_ = true;
};

}  // namespace tidegauge::op_stream
