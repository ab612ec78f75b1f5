// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/events/event.h"
#include "core/events/unit_event.h"

namespace tidegauge {

struct PostMortem;  // core/ledger/post_mortem.h

/// The first tensor that was observed on a storage.
struct TensorFacts {
  std::string_view dtype;  ///< torch's name: "float32"
  std::span<const int64_t> shape;
};

/// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

/// Receives the same events as a Ledger, in the same order, and the names of ids.
///
/// Except for `attach`, it is called during training while a spin lock is held: an implementation
/// must return quickly, never block and never throw.
class EventSink {
 public:
  virtual ~EventSink() = default;

  /// Called once by the tracker that will send the events. Throws UsageError if the sink has a
  /// tracker already: the ids of two trackers mean different things.
  void attach();

  /// `first_tensor` and `stack` belong to a StorageBorn or StorageClaimed; null and 0 if unknown.
  virtual void record(const Event& event, const TensorFacts* first_tensor,
                      StackId stack) noexcept = 0;

  /// Called instead of `record` for an AllocationFailed.
  virtual void record_failure(const Event& event, const PostMortem& post_mortem) noexcept = 0;

  /// Called before the first event with this id. A later name replaces an earlier one. An empty
  /// class name keeps the earlier class name.
  virtual void name_module(ModuleId module, std::string_view name,
                           std::string_view class_name) noexcept = 0;
  virtual void name_op(OpId op, std::string_view name) noexcept = 0;
  /// The storage is the parameter or buffer `name` of the module; a storage may have several such
  /// names. Without a module, `name` is the program's own name for it.
  virtual void name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept = 0;
  /// Counts a step of an optimizer of this class.
  virtual void count_optimizer_step(std::string_view class_name) noexcept = 0;
  /// `frames`: one frame per line, innermost first.
  virtual void name_stack(StackId stack, std::string_view frames) noexcept = 0;
  /// A later name replaces an earlier one.
  virtual void name_unit(UnitId unit, std::string_view name) noexcept = 0;
  /// Sets a fact of the run. A later value replaces an earlier one.
  virtual void set_fact(std::string_view key, std::string_view value) noexcept = 0;
  /// Records a change of a unit. It happened after the last event that was recorded.
  virtual void record_unit(const UnitEvent& event) noexcept = 0;

 private:
  std::atomic<bool> has_tracker_{false};
};

}  // namespace tidegauge
