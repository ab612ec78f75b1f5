// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge {

/// One way to run a block of a model: keep everything for its backward, or recompute some of it.
struct BlockChoice {
  int64_t kept_bytes = 0;     ///< from the end of the block's forward to its backward
  int64_t working_bytes = 0;  ///< highest bytes while it runs, without what blocks before it keep
  int64_t time_ns = 0;        ///< of forward, recompute and backward
};

/// Which choice should each block of a chain make?
///
///   bytes  ^                       .-- block 3 works
///          |             .-- 2 ----'
///          |   .-- 1 ----'  keeps        peak = max over blocks i of
///          |---'  keeps                         kept of blocks before i + working of i,
///          +------------------------->          and tail_bytes + kept of all blocks
///
/// working_bytes includes what is always there (parameters, states, gradients so far), so it may
/// differ between equal blocks. Numbers are at least 0; sums must fit into 63 bits.
struct PlanProblem {
  std::vector<std::vector<BlockChoice>> blocks{};  ///< in the order of forward
  int64_t tail_bytes = 0;   ///< highest bytes between the last block's forward and its backward
  int64_t floor_bytes = 0;  ///< highest bytes outside, e.g. in the optimizer step
  /// Equal numbers for equal blocks; empty: no two are equal. Only for `make_regular`.
  std::vector<int32_t> classes{};
};

struct BlockPlan {
  std::vector<int32_t> choices{};  ///< for each block an index into its choices
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
};

struct PlanFront {
  /// Every plan that is better than all others in peak or in time, fastest first.
  std::vector<BlockPlan> plans{};
  /// No plan is faster than one here by more than this, at the same peak. 0: the front is exact.
  int64_t gap_ns = 0;
};

/// Peak and time of some choices. Throws UsageError if they do not match the blocks.
TIDEGAUGE_API BlockPlan evaluate_plan(const PlanProblem& problem,
                                      const std::vector<int32_t>& choices);

/// Goes from the last block to the first. What follows block i matters for block i only by its peak
/// P and its time T, and both grow with them:
///
///   P(i) = max(working(i), kept(i) + P(i + 1))        T(i) = time(i) + T(i + 1)
///
/// so it is enough to keep the pairs (P, T) that no other pair beats. If they are more than
/// `most_points`, pairs whose times differ by little are merged, and `gap_ns` says how little.
/// Throws UsageError for a block without choices and for negative numbers.
TIDEGAUGE_API PlanFront find_plans(const PlanProblem& problem, size_t most_points = 20000);

/// The same numbers of choices among the blocks of each class, but equal choices side by side; the
/// one that needs most working memory comes first, when the blocks before keep least. The plan
/// itself if its peak is lower and the regular one exceeds `budget_bytes`.
TIDEGAUGE_API BlockPlan make_regular(const PlanProblem& problem, const BlockPlan& plan,
                                     int64_t budget_bytes);

}  // namespace tidegauge
