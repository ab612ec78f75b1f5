// SPDX-License-Identifier: BSD-3-Clause
#include "track/tracker_failures.h"

#include <utility>

#include "capture/hooks/op_hook.h"

namespace tidegauge {

TrackerFailures::TrackerFailures(std::shared_ptr<ModuleActivity> modules)
    : modules_(std::move(modules)), earlier_of_ops_(op_hook::failures().count()) {}

int64_t TrackerFailures::count() const {
  const int64_t of_ops = op_hook::failures().count() - earlier_of_ops_;
  return of_hooks_.count() + modules_->failures().count() + of_ops;
}

std::string TrackerFailures::first() const {
  if (of_hooks_.count() > 0) return of_hooks_.first();
  if (modules_->failures().count() > 0) return modules_->failures().first();
  return op_hook::failures().count() > earlier_of_ops_ ? op_hook::failures().first() : "";
}

void TrackerFailures::record(EventSink& sink) const {
  if (count() == 0) return;
  sink.set_fact("hook_failures", std::to_string(count()));
  sink.set_fact("first_hook_failure", first());
}

}  // namespace tidegauge
