// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/events/device.h"
#include "fit/replays.h"
#include "tidegauge/fit.h"
#include "trace/event_source.h"

namespace tidegauge {

/// What a verdict needs to know of a run beside its requests.
struct RunKind {
  int64_t world_size = 1;
  Basis tensors = Basis::Measured;  ///< or Simulated
};
/// From the facts of a trace: `world_size`, and `simulated` if the run was a simulation.
RunKind read_run_kind(const std::map<std::string, std::string>& facts);

/// The rule of tidegauge/fit.h, for requests that were read already. `traced_device` of the options
/// is of no effect here.
Verdict judge(Replays& replays, RunKind run, const FitOptions& options);

using DevicePeaks = std::vector<std::pair<std::string, int64_t>>;  ///< "cuda:0" and its bytes

/// The device whose tensors a verdict is of: `wanted`, or the one with the highest peak that is not
/// the CPU, or the CPU. UsageError for one that is not among `peaks`.
std::string choose_device(const DevicePeaks& peaks, const std::optional<std::string>& wanted);

/// The requests of one device of a run. One pass over the events.
RequestStream read_requests(EventSource& source, Device device);

}  // namespace tidegauge
