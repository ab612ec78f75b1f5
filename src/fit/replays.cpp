// SPDX-License-Identifier: BSD-3-Clause
#include "fit/replays.h"

namespace tidegauge {

const SimulatedRun& Replays::run(const std::string& alloc_conf, int64_t total_bytes,
                                 int64_t outside_bytes) {
  const auto key = std::tuple(alloc_conf, total_bytes, outside_bytes);
  const auto found = runs_.find(key);
  if (found != runs_.end()) return found->second;
  const AllocatorOptions options = make_options(alloc_conf, total_bytes, outside_bytes);
  return runs_.emplace(key, requests_.replay(options)).first->second;
}

Layout Replays::layout_at_peak(const std::string& alloc_conf) {
  const size_t request_count = run(alloc_conf).requests_to_peak;
  return requests_.layout_after(request_count, make_options(alloc_conf, kNoLimit, 0));
}

AllocatorOptions Replays::make_options(const std::string& alloc_conf, int64_t total_bytes,
                                       int64_t outside_bytes) const {
  AllocatorOptions options;
  options.config = parse_alloc_config(alloc_conf);
  options.tie = tie_;
  options.total_bytes = total_bytes;
  options.outside_bytes = outside_bytes;
  return options;
}

}  // namespace tidegauge
