// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "analyze/run.h"
#include "core/events/device.h"
#include "fit/run_requests.h"

namespace tidegauge {

/// A run with all that reports need of it: the answers of a Run and, if wanted, the allocation
/// requests to the device that `choose_device` prefers. All of it comes from the same two passes.
class ReadRun {
 public:
  /// Reads no timelines without `max_moments`, the number of moments of each. Propagates exceptions
  /// from the source.
  ReadRun(std::shared_ptr<EventSource> source, std::optional<uint64_t> max_moments,
          bool wants_requests, const Progress& progress = {});

  const Run& run() const { return *run_; }
  /// Null unless wanted.
  RunRequests* requests() { return requests_ ? &*requests_ : nullptr; }
  Device requested_device() const { return requested_device_; }

 private:
  std::optional<Run> run_;
  std::optional<RunRequests> requests_;
  Device requested_device_ = kCpu;
};

}  // namespace tidegauge
