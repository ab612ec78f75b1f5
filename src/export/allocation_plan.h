// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "core/events/device.h"
#include "core/events/ids.h"
#include "tidegauge/category.h"
#include "trace/progress.h"
#include "trace/reader.h"

namespace tidegauge {

/// The memory of a storage from its birth (or a resize) to its end (or the next resize).
struct PlannedAllocation {
  ModuleId module;      ///< running at the birth; for parameters and buffers, the owner
  OpId op;              ///< the op that made it
  uint32_t tensor = 0;  ///< index into Reader::tensors
  uint32_t stack = 0;   ///< index into Reader::stacks
  /// The category at the device's peak if the storage is alive then, else its last category.
  Category category{};
  uint16_t stream = 0;  ///< stream of the birth; on the host, FSDP2's stream (side_stream)

  friend auto operator<=>(const PlannedAllocation&, const PlannedAllocation&) = default;
};

struct PlannedRequest {
  int64_t time_ns = 0;
  int64_t size_bytes = 0;  ///< 0: the allocation is freed
  uint32_t allocation = 0;
};

/// The requests of a run to one device, in order. At every event of the trace, the bytes that are
/// requested but not freed equal those of the Ledger, so a resize is a free followed by a request.
struct AllocationPlan {
  std::vector<PlannedAllocation> allocations;
  std::vector<PlannedRequest> requests;
};

/// Makes two passes over the events. Propagates exceptions from the Reader.
AllocationPlan plan_allocations(Reader& reader, Device device, const Progress& progress = {});

}  // namespace tidegauge
