// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "capture/storages/end_watch.h"

namespace tidegauge {

/// Collects the ends that an EndWatch reports.
struct EndsLog final : EndHandler {
  void memory_ended(const RegisteredStorage& ended) override { memory.push_back(ended.id); }
  void storage_ended(const RegisteredStorage& ended) override { storages.push_back(ended.id); }

  std::vector<StorageId> memory;
  std::vector<StorageId> storages;
};

inline RegisteredStorage record_of(uint64_t id) {
  RegisteredStorage record;
  record.id = StorageId(id);
  return record;
}

}  // namespace tidegauge
