// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "allocator/alloc_config.h"
#include "allocator/device_trace.h"

namespace tidegauge {

/// Which of several free blocks of the same size is taken.
enum class TieRule : uint8_t {
  Address,         ///< the lowest address: torch up to 2.11
  SegmentCounter,  ///< of the oldest segment, there the lowest address: torch 2.13
  PrivateCounter,  ///< so in private pools, in others by address: torch 2.12
};

/// When a block that another stream used is free again; a simulator has no clock to know.
enum class DeferredFrees : uint8_t {
  AtNextMalloc,  ///< the other stream was quick: the lowest memory possible
  AtSync,        ///< it was slow: only synchronize_host() or a flush of the cache ends its use
  ByCaller,      ///< complete_free() says so
};

struct AllocatorOptions {
  AllocConfig config;
  TieRule tie = TieRule::SegmentCounter;
  DeferredFrees deferred = DeferredFrees::AtNextMalloc;
  int64_t total_bytes = kNoLimit;  ///< memory of the device
  int64_t outside_bytes = 0;       ///< of it used by others: context, libraries, processes
  /// As torch.cuda.set_per_process_memory_fraction sets it; the settings say it otherwise.
  std::optional<double> memory_fraction;
  /// The address of a new segment or range; without it, or at kNoAddress, the next unused one.
  std::function<int64_t(int64_t size_bytes, bool is_expandable)> place;
  std::function<void(const TraceEvent&)> on_segment_event;
};
inline constexpr int64_t kNoAddress = -1;

struct PoolOptions {
  bool no_split = false;    ///< blocks are handed out whole
  bool use_on_oom = false;  ///< lends free blocks to the default pool before that gives up
};

}  // namespace tidegauge
