// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/hooks/op_hook.h"
#include "capture/hooks/op_stream.h"
#include "core/events/op_call.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// The ops of a program in their order, 8 bytes each: equal calls are described once.
///
///   entries  [call 0][call 1][call 0][call 2] ...        a position is an index into them
///   calls    aten::mm [8, 4] [4, 2] | aten::add.Tensor ... | aten::mm [16, 4] ...
///
/// Thread-safe. `start` and `stop` are called in the thread that is observed. If a FakeTensorMode
/// is active at `start`, it logs the ops of this mode, else real and simulated ops.
class TIDEGAUGE_API OpLog final : public op_stream::OpListener {
 public:
  OpLog() = default;
  ~OpLog();
  OpLog(const OpLog&) = delete;
  OpLog& operator=(const OpLog&) = delete;

  /// No effect if it is started.
  void start();
  void stop();

  int64_t position() const;
  /// From one position to another; both are cut to the entries that exist.
  std::vector<OpEntry> entries(int64_t begin, int64_t end) const;
  /// From the call of this number on.
  std::vector<OpCall> calls(int64_t begin) const;
  /// The names of the modules that the entries name by number.
  std::unordered_map<uint32_t, std::string> module_names() const;

  void op_ran(std::span<const int64_t> words, uint8_t facts, uint16_t stream) override;
  void event_recorded(uint32_t event, uint16_t stream) override;
  void event_awaited(uint32_t event, uint16_t stream) override;
  void module_moved(ModuleId module, const std::string& name, bool enters) override;

 private:
  static size_t hash(std::span<const int64_t> words);

  /// The first call with this hash, by number; -1 ends the chain in `next_`.
  ska::flat_hash_map<size_t, int32_t> first_;
  std::vector<int32_t> next_;
  std::vector<std::vector<int64_t>> words_;  // by number
  std::vector<OpCall> calls_;                // by number
  std::vector<OpEntry> entries_;
  std::unordered_map<uint32_t, std::string> module_names_;
  op_hook::Thread thread_;
  mutable std::mutex mutex_;
};

}  // namespace tidegauge
