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

/// Facts about a run, besides its requests, that a verdict needs.
struct RunKind {
  int64_t world_size = 1;
  Basis tensors = Basis::Measured;  ///< or Simulated
  bool has_workspaces = false;      ///< the requests include those of kernels for workspaces
};
/// Reads them from the facts of a trace: `world_size`, `simulated` if the run was a simulation, and
/// `workspaces` if its kernels requested theirs.
RunKind read_run_kind(const std::map<std::string, std::string>& facts);
/// The tie rule that `name` gives, or else that of the fact `torch_version`. Throws UsageError for
/// an unknown name.
TieRule choose_tie_rule(const std::optional<std::string>& name,
                        const std::map<std::string, std::string>& facts);

/// Applies the rule of tidegauge/fit.h to requests that were already read. Ignores `tie` and
/// `traced_device` of the options.
Verdict judge(Replays& replays, RunKind run, const FitOptions& options);

using DevicePeaks = std::vector<std::pair<std::string, int64_t>>;  ///< ("cuda:0", bytes)

/// The device whose tensors are judged: `wanted` if given, or else the device with the highest peak
/// other than the CPU, or else the CPU. Throws UsageError if `wanted` is not in `peaks`.
std::string choose_device(const DevicePeaks& peaks, const std::optional<std::string>& wanted);

/// Reads the requests of a run to one device, in one pass over the events.
RequestStream read_requests(EventSource& source, Device device);

}  // namespace tidegauge
