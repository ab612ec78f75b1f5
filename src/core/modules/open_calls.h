// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/events/event.h"

namespace tidegauge {

/// The module calls that are open at a point in a stream of events. It has the only rule for which
/// call a ModuleExit ends: the youngest call with the same module, phase and thread. Calls may end
/// in any order. Autograd may begin a module's backward in one thread and end it in another, so a
/// backward exit without a call in its own thread ends the youngest such call of any other thread.
///
/// Backlog, Ledger, trace writer and exports use this class. (CallLog is for autograd nodes: it
/// finds the call that made a node.)
///
/// Cost: O(calls that are younger than the one that ends). Not thread-safe.
class OpenCalls {
 public:
  struct Call {
    size_t mark;  ///< the value that the caller passed to `enter`
    ModuleId module;
    ThreadId thread;
    Phase phase;
  };

  /// Applies a ModuleEnter. Returns false, without effect, if the event has no module or an unknown
  /// phase.
  bool enter(const Event& event, size_t mark = 0) {
    if (!event.module || !is_phase(event.phase)) return false;
    calls_.push_back({mark, event.module, event.thread, event.phase});
    return true;
  }
  /// Applies a ModuleExit. Returns the call that it closes; none if no call matches.
  std::optional<Call> leave(const Event& event) {
    size_t found = calls_.size();
    for (size_t i = calls_.size(); i-- > 0;) {
      const Call& call = calls_[i];
      if (call.module != event.module || call.phase != event.phase) continue;
      const bool is_same_thread = call.thread == event.thread;
      const bool is_first_match = found == calls_.size();
      if (is_same_thread || (event.phase == Phase::Backward && is_first_match)) found = i;
      if (is_same_thread) break;
    }
    if (found == calls_.size()) return std::nullopt;
    const Call call = calls_[found];
    calls_.erase(calls_.begin() + static_cast<ptrdiff_t>(found));
    return call;
  }
  void mark_all(size_t mark) {
    for (Call& call : calls_) call.mark = mark;
  }

  /// The open calls, oldest first.
  auto begin() const { return calls_.begin(); }
  auto end() const { return calls_.end(); }
  const Call& back() const { return calls_.back(); }
  bool empty() const { return calls_.empty(); }
  size_t size() const { return calls_.size(); }

  bool is_open(ModuleId module, Phase phase) const {
    for (const Call& call : calls_) {
      if (call.module == module && call.phase == phase) return true;
    }
    return false;
  }
  /// The innermost module that is running in the thread; 0 for none.
  ModuleId innermost(ThreadId thread) const {
    for (size_t i = calls_.size(); i-- > 0;) {
      if (calls_[i].thread == thread) return calls_[i].module;
    }
    return {};
  }
  /// Appends all modules that are running in the thread, innermost first.
  void append_to(std::vector<ModuleId>& modules, ThreadId thread) const {
    for (size_t i = calls_.size(); i-- > 0;) {
      if (calls_[i].thread == thread) modules.push_back(calls_[i].module);
    }
  }
  size_t footprint_bytes() const { return calls_.capacity() * sizeof(Call); }

 private:
  std::vector<Call> calls_;
};

}  // namespace tidegauge
