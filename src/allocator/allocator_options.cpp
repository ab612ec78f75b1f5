// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/allocator_options.h"

#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {

TieRule parse_tie_rule(std::string_view name) {
  if (name == "address") return TieRule::Address;
  if (name == "counter") return TieRule::SegmentCounter;
  if (name == "private-counter") return TieRule::PrivateCounter;
  throw UsageError("unknown tie rule '" + std::string(name) +
                   "' (expected address, counter or private-counter)");
}

DeferredFrees parse_deferred_frees(std::string_view name) {
  if (name == "recorded") return DeferredFrees::ByCaller;
  if (name == "low") return DeferredFrees::AtNextMalloc;
  if (name == "high") return DeferredFrees::AtSync;
  throw UsageError("unknown policy for deferred frees '" + std::string(name) +
                   "': expected recorded, low or high");
}

}  // namespace tidegauge
