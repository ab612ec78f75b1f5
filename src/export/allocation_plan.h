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

/// Memory that a storage has from its birth, or a resize, to its end, or the next resize.
struct PlannedAllocation {
  ModuleId module;      ///< that ran at the birth; of parameters and buffers, the owner
  OpId op;              ///< that made it
  uint32_t tensor = 0;  ///< of Reader::tensors
  uint32_t stack = 0;   ///< of Reader::stacks
  /// At the moment of the device's peak if it is alive then, else the last one.
  Category category{};
  uint16_t stream = 0;  ///< of the birth; on the host, what FSDP2 would take (side_stream)

  friend auto operator<=>(const PlannedAllocation&, const PlannedAllocation&) = default;
};

struct PlannedRequest {
  int64_t time_ns = 0;
  int64_t size_bytes = 0;  ///< 0: the allocation is freed
  uint32_t allocation = 0;
};

/// What a run asked of one device, in order. At every event of the trace the bytes that are
/// requested and not freed are those of the Ledger: so a resize is a free, then a request.
struct AllocationPlan {
  std::vector<PlannedAllocation> allocations;
  std::vector<PlannedRequest> requests;
};

/// Two passes over the events. Throws as the Reader does.
AllocationPlan plan_allocations(Reader& reader, Device device, const Progress& progress = {});

}  // namespace tidegauge
