// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"
#include "allocator/tie_rule.h"

namespace tidegauge {

/// When a freed block that another stream used becomes free. A simulator has no clock to decide
/// this.
enum class DeferredFrees : uint8_t {
  AtNextMalloc,  ///< the other stream was quick: the lowest possible memory
  AtSync,        ///< it was slow: only synchronize_host() or a flush of the cache ends its use
  ByCaller,      ///< when the caller calls complete_free()
};

/// Parses the name of a policy: "low" (AtNextMalloc), "high" (AtSync) or "recorded" (ByCaller).
/// Throws UsageError for any other name.
DeferredFrees parse_deferred_frees(std::string_view name);

/// The memory of a device is at most this, so that no sum of sizes can overflow.
inline constexpr int64_t kMaxDeviceBytes = int64_t{1} << 60;

struct AllocatorOptions {
  AllocConfig config;
  TieRule tie = TieRule::SegmentCounter;
  DeferredFrees deferred = DeferredFrees::AtNextMalloc;
  int64_t total_bytes = kNoLimit;  ///< memory of the device: kNoLimit or up to kMaxDeviceBytes
  int64_t outside_bytes = 0;       ///< of it, used by the context, libraries and other processes
  /// Set by torch.cuda.set_per_process_memory_fraction; overrides the settings.
  std::optional<double> memory_fraction;
  /// Chooses the address of a new segment or range; if null or kNoAddress, the next unused one.
  std::function<int64_t(int64_t size_bytes, bool is_expandable)> place;
  /// Returns the address at which a range at `address`, for this stream and pool, must have ended;
  /// null: ranges have the usual size.
  std::function<int64_t(int64_t address, int64_t stream, PoolId pool, bool is_small)> range_end;
  std::function<void(const TraceEvent&)> on_segment_event;
  /// The allocator waits for all streams, before it releases its cache. With
  /// DeferredFrees::ByCaller the caller may complete frees here.
  std::function<void()> on_sync;
};
inline constexpr int64_t kNoAddress = -1;

struct PoolOptions {
  bool no_split = false;    ///< never split a block
  bool use_on_oom = false;  ///< the default pool may use its free blocks before it runs out
};

}  // namespace tidegauge
