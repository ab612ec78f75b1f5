// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>

namespace tidegauge::trace {

/// Rows of the table `run`, by key.
using RunFacts = std::map<std::string, std::string>;

/// UTC, "2026-01-31T12:00:00Z".
std::string wall_clock();

/// Facts about this process (command, host, pid, rank, world_size, started), and the user's facts,
/// which replace facts with the same key.
RunFacts read_run_facts(const RunFacts& of_user);

}  // namespace tidegauge::trace
