// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <limits>
#include <random>

#include "core/events/event_factory.h"

namespace tidegauge {

inline constexpr uint32_t kModules = 5;
inline constexpr uint64_t kStorages = 14;

/// Random events: valid ones, as a tracker emits them, or hostile ones, as a damaged trace may
/// contain them.
class Stream {
 public:
  Stream(uint64_t seed, bool is_hostile) : random_(seed), is_hostile_(is_hostile) {
    // Some streams have only storage events, some nearly only module events. Each kind finds
    // different bugs.
    for (int& weight : weights_) weight = 1 + below(20);
  }

  int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }
  bool one_in(int n) { return below(n) == 0; }

  Event next() {
    Event event = draw();
    if (is_hostile_ && one_in(12)) spoil(event);
    return event;
  }

 private:
  Event draw() {
    const Device devices[] = {kCpu, cuda(0), kMeta};
    time_ns_ += below(3);
    const events::Origin origin{time_ns_, ThreadId(static_cast<uint16_t>(1 + below(3))),
                                devices[one_in(3) ? below(3) : 0]};
    const StorageId storage(static_cast<uint64_t>(1 + below(kStorages)));
    const ModuleId module(static_cast<uint32_t>(1 + below(kModules)));
    // Few different sizes, so that equal totals and empty storages are common.
    const int64_t size_bytes = 64 * below(5);
    const auto phase = static_cast<Phase>(below(kPhaseCount));
    switch (draw_kind()) {
      case 0:
      case 1:
        return events::storage_born(origin, storage, size_bytes, static_cast<uint8_t>(below(16)));
      case 2:
        return events::storage_resized(origin, storage, size_bytes);
      case 3:
        return events::storage_relabelled(origin, storage, draw_role(), Since::Now);
      case 4:
        if (one_in(3)) {
          return events::storage_claimed(origin, storage, static_cast<uint8_t>(below(16)));
        }
        return events::storage_relabelled(origin, storage, draw_role(), Since::Birth);
      case 5:
        return events::storage_freed(origin, storage);
      case 6:
        return events::module_enter(origin, module, phase);
      case 7:
        return events::module_exit(origin, module, phase);
      case 8:
        return events::module_mark(origin, module, static_cast<ModuleState>(8 + below(8)));
      case 9:
        return events::module_size(origin, module, static_cast<SizeOf>(below(4)), size_bytes);
      default:
        return draw_rare(origin);
    }
  }

  int draw_kind() {
    int sum = 0;
    for (const int weight : weights_) sum += weight;
    int left = below(sum);
    int kind = 0;
    while (left >= weights_[kind]) left -= weights_[kind++];
    return kind;
  }

  // Few roles, so that relabels to the same category are common.
  Role draw_role() { return static_cast<Role>(one_in(4) ? below(kRoleCount) : below(3)); }

  Event draw_rare(const events::Origin& origin) {
    const auto first = static_cast<int>(EventKind::OptimizerStepBegin);
    const int drawn = below(10);
    if (drawn == 9) return events::allocation_failed(origin, below(100), ModuleId(1), OpId(1));
    Event event = events::make(origin, static_cast<EventKind>(first + drawn));
    if (event.kind == EventKind::ModuleGone) event.module = ModuleId(1 + below(4));
    return event;
  }

  void spoil(Event& event) {
    switch (below(9)) {
      case 0:
        event.storage = StorageId(static_cast<uint64_t>(below(2)) * 1'000'000'007ull);
        break;
      case 1:
        event.module = ModuleId();
        break;
      case 2:
        event.size_bytes = -1 - below(100);
        break;
      case 3:
        event.size_bytes = std::numeric_limits<int64_t>::max() - below(100);
        break;
      case 4:
        event.kind = static_cast<EventKind>(below(256));
        break;
      case 5:
        event.phase = static_cast<Phase>(below(256));
        break;
      case 6:
        event.role = static_cast<Role>(below(256));
        event.since = static_cast<Since>(below(4));
        break;
      case 7:
        event.state = static_cast<ModuleState>(below(256));
        event.size_of = static_cast<SizeOf>(below(8));
        break;
      case 8:
        event.birth_facts = static_cast<uint8_t>(below(256));
        event.device = {static_cast<int8_t>(below(256) - 128), static_cast<int8_t>(below(3) - 1)};
        break;
    }
  }

  std::mt19937_64 random_;
  bool is_hostile_;
  int64_t time_ns_ = 0;
  std::array<int, 11> weights_{};
};

}  // namespace tidegauge
