// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/run.h"

#include <utility>

namespace tidegauge {

Run::Run(std::shared_ptr<EventSource> source, const RunQuestions& questions,
         const Progress& progress)
    : source_(std::move(source)), timeline_(questions.timeline.value_or(TimelineOptions{})) {
  std::vector<Analysis*> analyses = {&summary_, &units_, &growth_};
  if (questions.timeline) analyses.push_back(&timeline_);
  analyses.insert(analyses.end(), questions.others.begin(), questions.others.end());
  analyze(*source_, analyses, progress);
}

}  // namespace tidegauge
