// SPDX-License-Identifier: BSD-3-Clause
#include "capture/live_set.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/ledger.h"

namespace tidegauge {

void LiveSet::apply(const Event& event, const Ledger& ledger, const TensorFacts* first_tensor,
                    StackId stack) {
  if (event.kind == EventKind::StorageFreed) {
    births_.erase(event.storage);
    return;
  }
  const bool is_born = event.kind == EventKind::StorageBorn;
  if (!is_born && event.kind != EventKind::StorageClaimed) return;
  Birth& birth = births_[event.storage];
  if (is_born) birth.module = ledger.innermost_module(event.thread);
  if (event.op) birth.op = event.op;
  if (stack) birth.stack = stack;
  if (first_tensor == nullptr) return;
  birth.dtype = first_tensor->dtype;
  birth.shape.assign(first_tensor->shape.begin(), first_tensor->shape.end());
}

std::vector<LiveGroup> LiveSet::groups(const Ledger& ledger, const Names& names) const {
  using Key =
      std::tuple<Device, Category, ModuleId, OpId, StackId, std::string_view, std::vector<int64_t>>;
  struct Sum {
    int64_t storage_count = 0;
    int64_t size_bytes = 0;
  };
  std::map<Key, Sum> sums;
  static const Birth unknown;
  ledger.visit_storages([&](StorageId id, const StorageInfo& storage) {
    if (storage.size_bytes == 0) return;
    const auto found = births_.find(id);
    const Birth& birth = found != births_.end() ? found->second : unknown;
    Sum& sum = sums[{storage.device,
                     storage.category,
                     birth.module,
                     birth.op,
                     birth.stack,
                     birth.dtype,
                     {birth.shape.begin(), birth.shape.end()}}];
    ++sum.storage_count;
    sum.size_bytes += storage.size_bytes;
  });

  std::vector<LiveGroup> groups;
  groups.reserve(sums.size());
  for (const auto& [key, sum] : sums) {
    const auto& [device, category, module, op, stack, dtype, shape] = key;
    groups.push_back({.device = to_string(device),
                      .category = category,
                      .module = module ? names.module(module) : std::string(),
                      .op = op ? names.op(op) : std::string(),
                      .dtype = std::string(dtype),
                      .shape = dtype.empty() ? std::string() : shape_text(shape),
                      .stack = stack ? names.stack(stack) : std::string(),
                      .storage_count = sum.storage_count,
                      .size_bytes = sum.size_bytes});
  }
  std::stable_sort(groups.begin(), groups.end(), [](const LiveGroup& a, const LiveGroup& b) {
    return a.size_bytes > b.size_bytes;
  });
  return groups;
}

}  // namespace tidegauge
