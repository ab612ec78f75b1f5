// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/events/category.h"
#include "core/events/device.h"
#include "core/events/ids.h"
#include "core/util/flat_table.h"

namespace tidegauge {

inline constexpr uint32_t kNoHistory = UINT32_MAX;

/// A live storage, as the Ledger returns it.
struct StorageInfo {
  Device device;
  int64_t size_bytes = 0;
  Category category{};

  friend bool operator==(const StorageInfo&, const StorageInfo&) = default;
};

/// A live storage, as the Ledger stores it. `since_sequence` is the event that gave it its present
/// size and category; the StorageHistory has the earlier ones, as long as a read can need them.
struct StorageRecord {
  StorageId id;
  int64_t size_bytes = 0;
  uint64_t since_sequence = 0;
  uint32_t history = kNoHistory;
  uint16_t device_slot = 0;
  Category category{};
};
static_assert(sizeof(StorageRecord) == 32);

/// The live storages by id, 53 to 107 bytes each.
using StorageTable = FlatTable<StorageRecord, &StorageRecord::id>;

}  // namespace tidegauge
