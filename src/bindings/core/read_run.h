// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "analyze/run.h"
#include "bindings/core/fit.h"
#include "fit/request_analysis.h"

namespace tidegauge::bindings {

/// The analyses of a run, for Python, and its allocation requests to a device.
class ReadRun {
 public:
  /// Without `max_moments`, no timeline is read.
  ReadRun(std::shared_ptr<EventSource> source, std::optional<uint64_t> max_moments,
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

  const Run& run() const { return *run_; }
  /// Null unless it was requested.
  Requests* requests() { return requests_ ? &*requests_ : nullptr; }
  Device requested_device() const { return requested_device_; }

 private:
  std::optional<Run> run_;
  std::optional<Requests> requests_;
  Device requested_device_;
};

/// The timelines as columns for the HTML report: ([columns by table of each device], names of
/// parameters, counted from 1).
pybind11::tuple timeline_columns(const ReadRun& self, int64_t started_ns);
/// The changes of units of sharded parameters as columns.
pybind11::dict unit_lane_columns(const ReadRun& self, int64_t started_ns);

}  // namespace tidegauge::bindings
