// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "capture/modules/module_activity.h"
#include "core/events/event_sink.h"
#include "core/util/failures.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// The failures of our own code that concern one tracker: of the hooks that notify it, of its
/// modules, and of ops since the tracker exists. Thread-safe.
class TIDEGAUGE_API TrackerFailures {
 public:
  explicit TrackerFailures(std::shared_ptr<ModuleActivity> modules);

  /// Where the hooks note their failures.
  Failures& of_hooks() { return of_hooks_; }

  int64_t count() const;
  /// The message of the first one; empty if there was none.
  std::string first() const;
  /// Writes both as facts of the run. No effect without a failure.
  void record(EventSink& sink) const;

 private:
  Failures of_hooks_;
  const std::shared_ptr<ModuleActivity> modules_;
  const int64_t earlier_of_ops_;  // before the tracker existed
};

}  // namespace tidegauge
