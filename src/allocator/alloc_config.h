// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace tidegauge {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kMaxPageBytes = int64_t{1} << 40;  ///< of large_segment_size_mb

/// The settings that torch reads from PYTORCH_CUDA_ALLOC_CONF, with torch's defaults.
struct AllocConfig {
  /// Larger blocks are neither split nor given to smaller requests.
  int64_t max_split_bytes = kNoLimit;
  /// The largest difference between a request and a block that may not be split.
  int64_t max_non_split_rounding_bytes = 20 * kMiB;
  /// Size of the segment for requests of 1 to 10 MiB, and of a page of large expandable segments.
  int64_t large_segment_bytes = 20 * kMiB;
  /// Share of the allowed memory above which old cached blocks are released; 0: never.
  double garbage_collection_threshold = 0;
  /// By size: entry 0 is for less than 2 MiB, entry i for 2^i to 2^(i+1) MiB. 0 and 1: off.
  std::array<int64_t, 16> roundup_power2_divisions{};
  bool expandable_segments = false;
  /// Share of the device's memory that may be reserved; 1: no limit.
  double per_process_memory_fraction = 1.0;
  /// Reject a request that would exceed that limit at once, without releasing the cache first.
  bool throw_on_cudamalloc_oom = false;

  // Parsed, but without effect in the simulator: all but the first concern other memory.
  bool graph_capture_record_stream_reuse = false;
  std::string backend = "native";
  bool release_lock_on_cudamalloc = false;
  bool pinned_use_cuda_host_register = false;
  bool pinned_use_background_threads = false;
  bool pinned_free_catch_all = false;
  int64_t pinned_num_register_threads = 1;
  int64_t pinned_reserve_segment_size_mb = 0;
  int64_t pinned_max_round_threshold_bytes = kNoLimit;
  int64_t pinned_max_cached_bytes = kNoLimit;

  friend bool operator==(const AllocConfig&, const AllocConfig&) = default;
};

/// Parses `text` as torch parses PYTORCH_CUDA_ALLOC_CONF. `previous` are the current settings: as
/// in torch, parsing again resets max_split, power-of-two divisions, garbage collection and
/// max_non_split_rounding; other settings that `text` does not name keep their values.
/// Throws UsageError with torch's message for settings that torch rejects.
AllocConfig parse_alloc_config(std::string_view text, const AllocConfig& previous = {});

}  // namespace tidegauge
