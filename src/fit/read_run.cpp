// SPDX-License-Identifier: BSD-3-Clause
#include "fit/read_run.h"

#include <array>
#include <utility>

#include "fit/request_analysis.h"

namespace tidegauge {

ReadRun::ReadRun(std::shared_ptr<EventSource> source, std::optional<uint64_t> max_moments,
                 bool wants_requests, const Progress& progress) {
  RunQuestions questions;
  if (max_moments) questions.timeline = TimelineOptions{.max_moments = *max_moments};
  RequestAnalysis requests;
  const std::array<Analysis*, 1> others = {&requests};
  if (wants_requests) questions.others = others;
  run_.emplace(std::move(source), questions, progress);
  if (wants_requests) requests_.emplace(requests.requests());
  requested_device_ = requests.device();
}

}  // namespace tidegauge
