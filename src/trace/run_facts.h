// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "trace/recorder.h"
#include "trace/writer.h"

namespace tidegauge::trace {

/// UTC, "2026-01-31T12:00:00Z".
std::string wall_clock();

/// What is known of this process (command, host, pid, rank, world_size, started), and what the
/// options add; those win.
RunFacts read_run_facts(const RecorderOptions& options);

}  // namespace tidegauge::trace
