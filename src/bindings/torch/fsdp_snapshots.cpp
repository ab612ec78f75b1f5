// SPDX-License-Identifier: BSD-3-Clause
//
// Statistics with the states of FSDPMemTracker: a module call begins at "Before Pre-Forward" and
// ends at "After Post-Forward".
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "bindings/common/snapshots.h"
#include "bindings/torch/snapshots.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

struct NamedState {
  ModuleState state;
  const char* name;
};

/// If two states got their first entries at the same moment, this order decides.
constexpr std::array kStates{
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
uint64_t first_moment(const ModuleStats& stats, ModuleState state) {
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

py::list to_rows(const Snapshot& snapshot) { return to_fsdp_rows(snapshot, &to_python); }

py::list to_list(const ModuleStats& stats, ModuleState state) {
  py::list calls;
  // Upstream creates these two lists in the first call and appends to them in the next.
  if (state == ModuleState::PeakForward) {
    calls.append(to_rows(highest(stats[state])));
  } else if (state == ModuleState::PreForward) {
    calls.append(to_rows(stats[state].front().bytes));
  } else {
    for (const ModuleSnapshot& call : stats[state]) calls.append(to_rows(call.bytes));
  }
  return calls;
}

py::dict to_dict(const std::map<Device, CategorySplit>& bytes) {
  py::dict result;
  for (const auto& [device, split] : bytes) result[to_python(device)] = to_category_dict(split);
  return result;
}

py::object to_ns(const std::optional<Instant>& instant) {
  return instant ? py::object(py::int_(instant->time_ns)) : py::none();
}

}  // namespace

py::dict to_fsdp_stats(const ModuleStats& stats) {
  std::vector<NamedState> states;
  std::copy_if(kStates.begin(), kStates.end(), std::back_inserter(states),
               [&](const NamedState& named) { return !stats[named.state].empty(); });
  std::stable_sort(states.begin(), states.end(), [&](const NamedState& a, const NamedState& b) {
    return first_moment(stats, a.state) < first_moment(stats, b.state);
  });
  py::list snapshots;
  for (const auto& [state, name] : states) {
    snapshots.append(py::make_tuple(name, to_list(stats, state)));
  }
  py::dict result;
  result["sizes"] = py::dict();
  result["snapshots"] = std::move(snapshots);
  result["local_peak"] = local_peak_totals(stats, &to_python);
  return result;
}

py::list to_python(const std::vector<UnitReport>& units) {
  py::list result;
  for (const UnitReport& unit : units) {
    py::list gatherings;
    for (const Gathering& gathering : unit.gatherings) {
      py::dict entry;
      entry["reason"] = std::string(to_string(gathering.reason));
      entry["begun_ns"] = gathering.begun.time_ns;
      entry["complete_ns"] = to_ns(gathering.complete);
      entry["released_ns"] = to_ns(gathering.released);
      gatherings.append(std::move(entry));
    }
    py::dict entry;
    entry["name"] = unit.name;
    entry["state"] = std::string(to_string(unit.state));
    entry["now"] = to_dict(unit.now);
    entry["at_peak"] = to_dict(unit.at_peak);
    py::dict share;
    for (const auto& [device, part] : unit.peak_share) share[to_python(device)] = part;
    entry["peak_share"] = std::move(share);
    entry["gatherings"] = std::move(gatherings);
    py::list timeline;
    for (const UnitChange& change : unit.timeline) {
      timeline.append(
          py::make_tuple(change.time_ns, to_python(change.device), to_category_dict(change.split)));
    }
    entry["timeline"] = std::move(timeline);
    entry["reduce_count"] = unit.reduce_count;
    result.append(std::move(entry));
  }
  return result;
}

}  // namespace tidegauge::bindings
