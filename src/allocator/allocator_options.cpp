// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/allocator_options.h"

#include <string>

#include "core/util/quote.h"
#include "tidegauge/errors.h"

namespace tidegauge {

DeferredFrees parse_deferred_frees(std::string_view name) {
  if (name == "recorded") return DeferredFrees::ByCaller;
  if (name == "low") return DeferredFrees::AtNextMalloc;
  if (name == "high") return DeferredFrees::AtSync;
  throw UsageError("unknown policy for deferred frees " + quote(name) +
                   " (expected one of recorded, low, high)");
}

}  // namespace tidegauge
