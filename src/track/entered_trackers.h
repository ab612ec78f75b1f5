// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/util/spin_lock.h"

namespace tidegauge {

/// The trackers of one front end that are entered now, in the order of their entries. A hook of
/// the program may enter or exit a tracker while the list is being read, so a change makes a new
/// list, and a reader keeps the one that it got. Thread-safe.
template <typename Tracker>
class EnteredTrackers {
 public:
  using List = std::vector<std::shared_ptr<Tracker>>;

  /// `is_any_entered` is kept up to date, for callers that cannot afford the lock.
  explicit EnteredTrackers(std::atomic<bool>* is_any_entered = nullptr)
      : is_any_entered_(is_any_entered) {}

  std::shared_ptr<const List> all() const {
    const std::lock_guard lock(mutex_);
    return list_;
  }
  /// No effect if the tracker is entered.
  void add(std::shared_ptr<Tracker> tracker) {
    change([&](List& list) {
      if (std::find(list.begin(), list.end(), tracker) == list.end()) {
        list.push_back(std::move(tracker));
      }
    });
  }
  /// No effect if the tracker is not entered.
  void remove(const Tracker& tracker) {
    change([&](List& list) {
      std::erase_if(list, [&](const auto& each) { return each.get() == &tracker; });
    });
  }

 private:
  template <typename Change>
  void change(Change&& change) {
    const std::lock_guard lock(mutex_);
    auto copy = std::make_shared<List>(*list_);
    change(*copy);
    if (is_any_entered_ != nullptr) *is_any_entered_ = !copy->empty();
    list_ = std::move(copy);
  }

  mutable SpinLock mutex_;
  std::shared_ptr<const List> list_ = std::make_shared<List>();
  std::atomic<bool>* const is_any_entered_;
};

}  // namespace tidegauge
