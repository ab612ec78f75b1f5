// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tidegauge {

/// One figure of torch.cuda.memory_stats.
struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;  ///< all increases
  int64_t freed = 0;      ///< all decreases

  void increase(int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }

  friend bool operator==(const Stat&, const Stat&) = default;
};

/// A figure for both pools together and each alone. Private pools count by the size of the block.
class StatByPool {
 public:
  void increase(bool is_small, int64_t amount) {
    all_.increase(amount);
    of(is_small).increase(amount);
  }
  void decrease(bool is_small, int64_t amount) {
    all_.decrease(amount);
    of(is_small).decrease(amount);
  }
  /// By a change of either sign; none leaves `allocated` and `freed` alone.
  void change(bool is_small, int64_t amount) {
    if (amount > 0) increase(is_small, amount);
    if (amount < 0) decrease(is_small, -amount);
  }

  const Stat& all() const { return all_; }
  const Stat& small_pool() const { return small_; }
  const Stat& large_pool() const { return large_; }

  template <typename Each>
  void for_each(Each each) {
    each(all_);
    each(small_);
    each(large_);
  }

 private:
  Stat& of(bool is_small) { return is_small ? small_ : large_; }

  Stat all_, small_, large_;
};

/// What the allocator counts; the names are those of torch.cuda.memory_stats.
struct MemoryStats {
  StatByPool allocation;      ///< handed out and not yet given back
  StatByPool active;          ///< the same, and what waits for other streams
  StatByPool segment;         ///< pieces got by cudaMalloc, never expandable ones
  StatByPool inactive_split;  ///< free blocks with neighbours, never expandable ones
  StatByPool allocated_bytes;
  StatByPool active_bytes;
  StatByPool reserved_bytes;
  StatByPool inactive_split_bytes;
  StatByPool requested_bytes;  ///< as asked for, of active blocks
  Stat oversize_allocations;
  Stat oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t num_oom_rejections = 0;

  void reset_peak();
  void reset_accumulated();
};

/// Sorted by name, as torch flattens them, such as `active_bytes.small_pool.peak`.
using FlatStats = std::vector<std::pair<std::string, int64_t>>;
FlatStats to_flat(const MemoryStats& stats, int64_t max_split_bytes);
/// Adds `name.all.current` and the like to `flat`, which is no longer sorted then.
void append_flat(FlatStats& flat, const std::string& name, const StatByPool& stat);

}  // namespace tidegauge
