// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "tidegauge/export.h"

namespace tidegauge {

/// The role of a storage in a sharded unit, as stated by the sharding code.
enum class UnitFact : uint8_t {
  Shard,             ///< this rank's part of a parameter
  GatherBuffer,      ///< input or output of an all-gather, or an intermediate copy
  Unsharded,         ///< a whole parameter
  PostForwardShard,  ///< a shard of a smaller mesh, kept after the forward
  UnshardedGrad,     ///< the gradient of a whole parameter, in any dtype
  ReduceBuffer,      ///< input or output of a reduce-scatter, or an intermediate copy
  AllReduceBuffer,   ///< output of a reduce-scatter that an all-reduce then reduces further
  ReducedGrad,       ///< a shard's gradient that lies in the buffer it was reduced into
  ShardGrad,         ///< a shard's gradient in its own memory: a cast, a sum, an earlier gradient
};
inline constexpr uint8_t kUnitFactCount = 9;

/// Why the whole parameters were gathered.
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
