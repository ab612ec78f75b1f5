// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/fsdp_states.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace tidegauge {
namespace {

struct NamedState {
  ModuleState state;
  std::string_view name;
};

/// If two states got their first entries at the same moment, this order decides.
constexpr std::array kFsdpStates{
    NamedState{ModuleState::PeakForward, "Peak Forward"},
    NamedState{ModuleState::PreForward, "Before Pre-Forward"},
    NamedState{ModuleState::AfterPreForward, "After Pre-Forward"},
    NamedState{ModuleState::BeforePostForward, "Before Post-Forward"},
    NamedState{ModuleState::PostForward, "After Post-Forward"},
    NamedState{ModuleState::PeakBackward, "Peak Backward"},
    NamedState{ModuleState::BeforePreBackward, "Before Pre-Backward"},
    NamedState{ModuleState::AfterPreBackward, "After Pre-Backward"},
    NamedState{ModuleState::PreForwardAc, "Pre-Forward AC"},
    NamedState{ModuleState::PostForwardAc, "Post-Forward AC"},
    NamedState{ModuleState::BeforePostBackward, "Before Post-Backward"},
    NamedState{ModuleState::AfterPostBackward, "After Post-Backward"},
};

/// The moment at which upstream would have created the list.
uint64_t upstream_moment(const ModuleStats& stats, ModuleState state) {
  const ModuleSnapshot& first = stats[state].front();
  if (state == ModuleState::PeakForward) return first.call;
  if (state == ModuleState::PeakBackward) {
    const auto& before = stats[ModuleState::BeforePreBackward];
    return before.empty() ? first.call : std::min(first.call, before.front().bytes.taken.sequence);
  }
  return first.bytes.taken.sequence;
}

/// The maximum over all calls, for each device.
Snapshot highest(const std::vector<ModuleSnapshot>& calls) {
  Snapshot result = calls.front().bytes;
  for (const ModuleSnapshot& call : calls) {
    for (const DeviceSplit& entry : call.bytes.devices) {
      const auto same = std::find_if(result.devices.begin(), result.devices.end(),
                                     [&](const auto& d) { return d.device == entry.device; });
      if (same == result.devices.end()) {
        result.devices.push_back(entry);
      } else if (entry.split.total() > same->split.total()) {
        *same = entry;
      }
    }
  }
  return result;
}

std::vector<Snapshot> list_of(const ModuleStats& stats, ModuleState state) {
  if (state == ModuleState::PeakForward) return {highest(stats[state])};
  if (state == ModuleState::PreForward) return {stats[state].front().bytes};
  std::vector<Snapshot> calls;
  calls.reserve(stats[state].size());
  for (const ModuleSnapshot& call : stats[state]) calls.push_back(call.bytes);
  return calls;
}

}  // namespace

std::vector<FsdpState> fsdp_states(const ModuleStats& stats) {
  std::vector<NamedState> present;
  std::copy_if(kFsdpStates.begin(), kFsdpStates.end(), std::back_inserter(present),
               [&](const NamedState& named) { return !stats[named.state].empty(); });
  std::stable_sort(present.begin(), present.end(), [&](const NamedState& a, const NamedState& b) {
    return upstream_moment(stats, a.state) < upstream_moment(stats, b.state);
  });
  std::vector<FsdpState> states;
  states.reserve(present.size());
  for (const auto& [state, name] : present) states.push_back({name, list_of(stats, state)});
  return states;
}

void add_recompute(ModuleStats& wrapper, ModuleStats wrapped) {
  if (!wrapper[ModuleState::PreForwardAc].empty()) return;
  for (const ModuleState state : {ModuleState::PreForwardAc, ModuleState::PostForwardAc}) {
    const auto i = static_cast<size_t>(state);
    wrapper.snapshots[i] = std::move(wrapped.snapshots[i]);
  }
}

}  // namespace tidegauge
