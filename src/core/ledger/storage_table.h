// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/category.h"
#include "core/util/flat_table.h"
#include "core/events/ids.h"

namespace tidegauge {

inline constexpr uint32_t kNoHistory = UINT32_MAX;

/// One live storage. `since_sequence` is the event from which on size and category are what they
/// are now; what was before is in the StorageHistory, if anybody can still ask for it.
struct StorageRecord {
  StorageId id;
  int64_t size_bytes = 0;
  uint64_t since_sequence = 0;
  uint32_t history = kNoHistory;
  uint16_t device_slot = 0;
  Category category{};
};
static_assert(sizeof(StorageRecord) == 32);

/// The live storages by id: 53 to 107 bytes for each.
using StorageTable = FlatTable<StorageRecord, &StorageRecord::id>;

}  // namespace tidegauge
