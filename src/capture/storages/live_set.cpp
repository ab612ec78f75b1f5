// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/live_set.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/events/event_sink.h"
#include "core/ledger/ledger.h"

namespace tidegauge {

void LiveSet::set_long_shape(Birth& birth, c10::IntArrayRef sizes) {
  birth.dimensions = kLongShape;
  long_shapes_[birth.storage] = sizes.vec();
}

void LiveSet::drop_dead(const Ledger& ledger) {
  const auto is_dead = [&](StorageId storage) { return !ledger.find_category(storage); };
  std::erase_if(births_, [&](const Birth& birth) { return is_dead(birth.storage); });
  std::erase_if(long_shapes_, [&](const auto& entry) { return is_dead(entry.first); });
  placed_ = births_.size();
  capacity_ = kMinCapacity + 2 * births_.size();
}

std::vector<int64_t> LiveSet::shape_of(const Birth& birth) const {
  if (birth.dimensions == kNoTensor) return {};
  if (birth.dimensions == kLongShape) return long_shapes_.at(birth.storage);
  return {birth.sizes.begin(), birth.sizes.begin() + birth.dimensions};
}

std::vector<LiveGroup> LiveSet::groups(const Ledger& ledger, const Names& names) const {
  std::unordered_map<StorageId, Birth> known;
  for (const Birth& birth : births_) {
    const auto [place, is_new] = known.try_emplace(birth.storage, birth);
    if (is_new) continue;
    Birth& first = place->second;
    if (birth.module) first.module = birth.module;
    if (birth.op) first.op = birth.op;
    if (birth.stack) first.stack = birth.stack;
    if (birth.dimensions == kNoTensor) continue;
    first.dtype = birth.dtype;
    first.dimensions = birth.dimensions;
    first.sizes = birth.sizes;
  }

  using Key =
      std::tuple<Device, Category, ModuleId, OpId, StackId, std::string_view, std::vector<int64_t>>;
  struct Sum {
    int64_t storage_count = 0;
    int64_t size_bytes = 0;
  };
  std::map<Key, Sum> sums;
  ledger.visit_storages([&](StorageId id, const StorageInfo& storage) {
    if (storage.size_bytes == 0) return;
    const Birth& birth = known[id];
    Sum& sum = sums[{storage.device, storage.category, birth.module, birth.op, birth.stack,
                     birth.dimensions == kNoTensor ? std::string_view() : dtype_name(birth.dtype),
                     shape_of(birth)}];
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
