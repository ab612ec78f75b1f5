// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "tidegauge/export.h"

namespace tidegauge {

/// What sharding code says of a storage when it makes it, or hands it on.
enum class UnitFact : uint8_t {
  Shard,             ///< this rank's part of a parameter
  GatherBuffer,      ///< input or output of an all-gather, or a copy on the way
  Unsharded,         ///< a whole parameter
  PostForwardShard,  ///< a part of it kept after the forward, of a smaller mesh
  UnshardedGrad,     ///< the gradient of a whole parameter, in whatever type
  ReduceBuffer,      ///< input or output of a reduce-scatter, or a copy on the way
  AllReduceBuffer,   ///< what a reduce-scatter left and an all-reduce goes on with
  ReducedGrad,       ///< a shard's gradient that lies in the buffer it was reduced into
  ShardGrad,         ///< a shard's gradient in memory of its own: a cast, a sum, from before
};
inline constexpr uint8_t kUnitFactCount = 9;

/// Why whole parameters were gathered.
enum class GatherReason : uint8_t { Forward, Backward, Prefetch, User, Recompute };
inline constexpr uint8_t kGatherReasonCount = 5;
/// "forward", ...
TIDEGAUGE_API std::string_view to_string(GatherReason reason);

///             begin_gather          finish_gather             release
///   Sharded ---------------> Gathering ---------> Unsharded ----------> Sharded
///                                                     \--------> PostForwardSharded
enum class UnitState : uint8_t { Sharded, Gathering, Unsharded, PostForwardSharded };
/// "sharded", "gathering", "unsharded" or "post-forward sharded"
TIDEGAUGE_API std::string_view to_string(UnitState state);

}  // namespace tidegauge
