// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/events/event.h"

namespace tidegauge {

/// The module calls that are open, as events tell of them: those of several threads lie among each
/// other, and backward ends them in any order.
class OpenCalls {
 public:
  /// `mark`: what `leave` is to answer.
  void enter(const Event& event, size_t mark) {
    calls_.push_back({mark, event.module, event.thread, event.phase});
  }
  /// None if no such call is open.
  std::optional<size_t> leave(const Event& event) {
    std::optional<size_t> found;
    for (size_t i = calls_.size(); i-- > 0;) {
      const Call& call = calls_[i];
      if (call.module != event.module || call.phase != event.phase) continue;
      const bool is_of_thread = call.thread == event.thread;
      // Autograd may begin the backward of a module in one thread and end it in another.
      if (is_of_thread || (event.phase == Phase::Backward && !found)) found = i;
      if (is_of_thread) break;
    }
    if (!found) return std::nullopt;
    const size_t mark = calls_[*found].mark;
    calls_.erase(calls_.begin() + static_cast<ptrdiff_t>(*found));
    return mark;
  }
  void mark_all(size_t mark) {
    for (Call& call : calls_) call.mark = mark;
  }

  bool empty() const { return calls_.empty(); }

  /// The innermost module that runs in the thread; 0 for none.
  ModuleId innermost(ThreadId thread) const {
    for (size_t i = calls_.size(); i-- > 0;) {
      if (calls_[i].thread == thread) return calls_[i].module;
    }
    return {};
  }
  /// All that run in the thread, the innermost first.
  void append_to(std::vector<ModuleId>& modules, ThreadId thread) const {
    for (size_t i = calls_.size(); i-- > 0;) {
      if (calls_[i].thread == thread) modules.push_back(calls_[i].module);
    }
  }

 private:
  struct Call {
    size_t mark;
    ModuleId module;
    ThreadId thread;
    Phase phase;
  };

  std::vector<Call> calls_;
};

}  // namespace tidegauge
