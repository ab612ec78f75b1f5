// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tidegauge {

/// One figure of torch.cuda.memory_stats.
struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;  ///< sum of all increases
  int64_t freed = 0;      ///< sum of all decreases

  void increase(int64_t amount) {
    current += amount;
    allocated = add_capped(allocated, amount);
    peak = std::max(peak, current);
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed = add_capped(freed, amount);
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }

  friend bool operator==(const Stat&, const Stat&) = default;

 private:
  /// Sums over a whole run have no limit.
  static int64_t add_capped(int64_t sum, int64_t amount) {
    return sum > std::numeric_limits<int64_t>::max() - amount ? std::numeric_limits<int64_t>::max()
                                                              : sum + amount;
  }
};

/// A figure for the small pool, the large pool and both together. Blocks of private pools count as
/// small or large by their size.
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
  /// Applies a change of either sign; a change of 0 leaves `allocated` and `freed` unchanged.
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

/// The figures of the allocator, with the names of torch.cuda.memory_stats.
struct MemoryStats {
  StatByPool allocation;      ///< allocated blocks that their owner has not freed
  StatByPool active;          ///< the same, plus freed blocks that wait for other streams
  StatByPool segment;         ///< segments from cudaMalloc; never expandable ones
  StatByPool inactive_split;  ///< free blocks with neighbours; never in expandable segments
  StatByPool allocated_bytes;
  StatByPool active_bytes;
  StatByPool reserved_bytes;
  StatByPool inactive_split_bytes;
  StatByPool requested_bytes;  ///< requested bytes of active blocks, before rounding
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

/// Sorted by name; names as torch flattens them, e.g. `active_bytes.small_pool.peak`.
using FlatStats = std::vector<std::pair<std::string, int64_t>>;
FlatStats to_flat(const MemoryStats& stats, int64_t max_split_bytes);
/// Appends `name.all.current` etc. to `flat`, which is then no longer sorted.
void append_flat(FlatStats& flat, const std::string& name, const StatByPool& stat);

}  // namespace tidegauge
