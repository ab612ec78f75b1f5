// SPDX-License-Identifier: BSD-3-Clause
// Private pools of the CachingAllocator and their figures.
#include <algorithm>
#include <string>

#include "allocator/caching_allocator.h"
#include "tidegauge/errors.h"

namespace tidegauge {

void CachingAllocator::create_pool(PoolId pool, PoolOptions options) {
  if (pool.is_default() || private_pools_.contains(pool)) {
    throw UsageError("a private pool requires an unused id other than (0, 0)");
  }
  PrivatePool& made = private_pools_[pool];
  made.id = pool;
  made.options = options;
  made.small.owner = made.large.owner = &made;
}

PrivatePool& CachingAllocator::private_pool(PoolId pool) {
  const auto found = private_pools_.find(pool);
  if (found == private_pools_.end()) {
    throw UsageError("no private pool (" + std::to_string(pool.first) + ", " +
                     std::to_string(pool.second) + "): call create_pool first");
  }
  return found->second;
}

bool CachingAllocator::is_pool_used(PoolId pool) const {
  const auto found = private_pools_.find(pool);
  return found != private_pools_.end() && found->second.use_count > 0;
}

void CachingAllocator::retain_pool(PoolId pool) { ++private_pool(pool).use_count; }

void CachingAllocator::release_pool(PoolId pool) {
  PrivatePool& released = private_pool(pool);
  if (released.use_count == 0) throw UsageError("the private pool is not in use");
  --released.use_count;
}

void CachingAllocator::end_capture() {
  if (captures_ == 0) throw UsageError("end_capture without begin_capture");
  --captures_;
}

FlatStats CachingAllocator::flat_stats() const {
  FlatStats flat = to_flat(stats_, options_.config.max_split_bytes);
  for (const auto& [id, pool] : private_pools_) {
    append_flat(flat,
                "reserved_bytes_by_private_pools." + std::to_string(id.first) + "_" +
                    std::to_string(id.second),
                pool.reserved_bytes);
  }
  std::sort(flat.begin(), flat.end());
  return flat;
}

}  // namespace tidegauge
