// SPDX-License-Identifier: BSD-3-Clause
//
// Statistics with the states of FSDPMemTracker (core/ledger/fsdp_states.h), and its units.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <utility>

#include "bindings/common/snapshots.h"
#include "bindings/torch/snapshots.h"
#include "core/ledger/fsdp_states.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

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
  py::list snapshots;
  for (const FsdpState& state : fsdp_states(stats)) {
    py::list calls;
    for (const Snapshot& call : state.calls) calls.append(to_fsdp_rows(call, &to_python));
    snapshots.append(py::make_tuple(std::string(state.name), std::move(calls)));
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
