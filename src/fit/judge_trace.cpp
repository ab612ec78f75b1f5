// SPDX-License-Identifier: BSD-3-Clause
// `judge` in tidegauge/fit.h: reads a trace file in two passes.
#include <array>

#include "fit/judge.h"
#include "fit/request_analysis.h"
#include "tidegauge/fit.h"
#include "trace/reader.h"

namespace tidegauge {

Verdict judge(const std::string& trace, const FitOptions& options) {
  Reader reader(trace);
  RequestAnalysis analysis(options.traced_device);
  const std::array<Analysis*, 1> analyses{&analysis};
  analyze(reader, analyses);
  const auto facts = reader.run_facts();
  Replays replays(*analysis.requests(), choose_tie_rule(options.tie, facts));
  Verdict verdict = judge(replays, read_run_kind(facts), options);
  verdict.traced_device = to_string(analysis.device());
  return verdict;
}

}  // namespace tidegauge
