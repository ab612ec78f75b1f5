// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "tidegauge/errors.h"
#include "tidegauge/plan.h"

namespace {

using tidegauge::BlockPlan;
using tidegauge::evaluate_plan;
using tidegauge::find_plans;
using tidegauge::make_regular;
using tidegauge::PlanFront;
using tidegauge::PlanProblem;
using tidegauge::UsageError;

using Random = std::mt19937;
int64_t draw(Random& random, int64_t below) {
  return std::uniform_int_distribution<int64_t>(0, below - 1)(random);
}

PlanProblem draw_problem(Random& random) {
  PlanProblem problem;
  problem.tail_bytes = draw(random, 40);
  problem.floor_bytes = draw(random, 60);
  problem.blocks.resize(static_cast<size_t>(draw(random, 7)));
  for (auto& choices : problem.blocks) {
    choices.resize(static_cast<size_t>(1 + draw(random, 4)));
    for (auto& choice : choices) {
      choice = {draw(random, 20), draw(random, 60), draw(random, 12)};
    }
  }
  return problem;
}

/// All plans, one by one.
std::vector<BlockPlan> list_all(const PlanProblem& problem) {
  std::vector<BlockPlan> plans;
  std::vector<int32_t> choices(problem.blocks.size(), 0);
  for (;;) {
    plans.push_back(evaluate_plan(problem, choices));
    size_t i = 0;
    while (i < choices.size() && ++choices[i] == static_cast<int32_t>(problem.blocks[i].size())) {
      choices[i++] = 0;
    }
    if (i == choices.size()) return plans;
  }
}

using Pairs = std::vector<std::pair<int64_t, int64_t>>;  // (time, peak)

Pairs best_of(const std::vector<BlockPlan>& plans) {
  Pairs best;
  for (const BlockPlan& plan : plans) {
    const bool is_beaten = std::ranges::any_of(plans, [&plan](const BlockPlan& other) {
      return other.time_ns <= plan.time_ns && other.peak_bytes <= plan.peak_bytes &&
             (other.time_ns < plan.time_ns || other.peak_bytes < plan.peak_bytes);
    });
    if (!is_beaten) best.emplace_back(plan.time_ns, plan.peak_bytes);
  }
  std::ranges::sort(best);
  best.erase(std::ranges::unique(best).begin(), best.end());
  return best;
}

TEST(BlockSearch, PeakIsThatOfTheWorstMoment) {
  PlanProblem problem;
  problem.blocks = {{{10, 25, 1}}, {{20, 70, 2}}, {{5, 6, 3}}};
  problem.tail_bytes = 7;
  const auto plan = evaluate_plan(problem, {0, 0, 0});
  EXPECT_EQ(plan.peak_bytes, 10 + 70);  // while block 1 works
  EXPECT_EQ(plan.time_ns, 6);
  problem.tail_bytes = 100;
  EXPECT_EQ(evaluate_plan(problem, {0, 0, 0}).peak_bytes, 10 + 20 + 5 + 100);
  problem.floor_bytes = 1000;
  EXPECT_EQ(evaluate_plan(problem, {0, 0, 0}).peak_bytes, 1000);
}

TEST(BlockSearch, FrontIsThatOfAllPlans) {
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const PlanProblem problem = draw_problem(random);
    const PlanFront front = find_plans(problem);
    Pairs found;
    for (const BlockPlan& plan : front.plans) {
      const BlockPlan again = evaluate_plan(problem, plan.choices);
      ASSERT_EQ(again.peak_bytes, plan.peak_bytes);
      ASSERT_EQ(again.time_ns, plan.time_ns);
      found.emplace_back(plan.time_ns, plan.peak_bytes);
    }
    ASSERT_EQ(found, best_of(list_all(problem))) << "problem " << i;
    ASSERT_EQ(front.gap_ns, 0);
  }
}

/// The lowest peak for each time, over all choices of the blocks from `i` on.
void visit_all(const PlanProblem& problem, size_t i, int64_t kept, int64_t peak, size_t time,
               std::vector<int64_t>& lowest) {
  if (i == problem.blocks.size()) {
    lowest[time] = std::min(lowest[time], std::max(peak, kept + problem.tail_bytes));
    return;
  }
  for (const auto& choice : problem.blocks[i]) {
    visit_all(problem, i + 1, kept + choice.kept_bytes, std::max(peak, kept + choice.working_bytes),
              time + static_cast<size_t>(choice.time_ns), lowest);
  }
}

TEST(BlockSearch, EightBlocksOfFourChoicesHaveTheFrontOfAllTheir65536Plans) {
  Random random(8);
  for (int i = 0; i < 1000; ++i) {
    PlanProblem problem = draw_problem(random);
    problem.blocks.resize(8);
    for (auto& choices : problem.blocks) {
      choices.resize(4);
      for (auto& choice : choices) choice = {draw(random, 50), draw(random, 150), draw(random, 40)};
    }
    std::vector<int64_t> lowest(8 * 40, std::numeric_limits<int64_t>::max());
    visit_all(problem, 0, 0, problem.floor_bytes, 0, lowest);
    Pairs best;
    for (size_t time = 0; time < lowest.size(); ++time) {
      if (lowest[time] < (best.empty() ? std::numeric_limits<int64_t>::max() : best.back().second))
        best.emplace_back(time, lowest[time]);
    }
    Pairs found;
    for (const BlockPlan& plan : find_plans(problem).plans) {
      found.emplace_back(plan.time_ns, plan.peak_bytes);
    }
    ASSERT_EQ(found, best) << "problem " << i;
  }
}

TEST(BlockSearch, MergedFrontIsWithinItsGap) {
  Random random(2);
  bool had_gap = false;
  for (int i = 0; i < 500; ++i) {
    const PlanProblem problem = draw_problem(random);
    const PlanFront front = find_plans(problem, 3);
    had_gap = had_gap || front.gap_ns > 0;
    for (const auto& [time, peak] : best_of(list_all(problem))) {
      ASSERT_TRUE(std::ranges::any_of(front.plans, [&](const BlockPlan& plan) {
        return plan.peak_bytes <= peak && plan.time_ns <= time + front.gap_ns;
      }));
    }
  }
  EXPECT_TRUE(had_gap);
}

TEST(BlockSearch, ManyEqualBlocksStayExact) {
  PlanProblem problem;
  problem.blocks.assign(126, {{900, 1000, 0}, {300, 950, 11}, {70, 930, 31}, {10, 920, 37}});
  const PlanFront front = find_plans(problem);
  EXPECT_EQ(front.gap_ns, 0);
  EXPECT_EQ(front.plans.front().time_ns, 0);
  EXPECT_EQ(front.plans.front().peak_bytes, 125 * 900 + 1000);
  EXPECT_EQ(front.plans.back().peak_bytes, 125 * 10 + 920);
  EXPECT_EQ(front.plans.back().time_ns, 126 * 37);
}

TEST(BlockSearch, RegularPlanHasEqualChoicesSideBySide) {
  PlanProblem problem;
  problem.blocks.assign(4, {{100, 110, 0}, {10, 120, 5}});
  problem.classes = {0, 0, 0, 0};
  const BlockPlan mixed = evaluate_plan(problem, {1, 0, 1, 0});
  const BlockPlan regular = make_regular(problem, mixed, 1000);
  EXPECT_EQ(regular.choices, (std::vector<int32_t>{1, 1, 0, 0}));
  EXPECT_EQ(regular.time_ns, mixed.time_ns);
  EXPECT_LE(regular.peak_bytes, mixed.peak_bytes);
}

TEST(BlockSearch, RegularPlanStaysBelowTheBudget) {
  Random random(3);
  for (int i = 0; i < 1000; ++i) {
    PlanProblem problem = draw_problem(random);
    if (problem.blocks.empty()) continue;
    problem.blocks.assign(problem.blocks.size(), problem.blocks[0]);
    problem.classes.assign(problem.blocks.size(), 0);
    for (const BlockPlan& plan : find_plans(problem).plans) {
      const BlockPlan regular = make_regular(problem, plan, plan.peak_bytes);
      ASSERT_LE(regular.peak_bytes, plan.peak_bytes);
      ASSERT_EQ(regular.time_ns, plan.time_ns);
    }
  }
}

TEST(BlockSearch, InvalidProblemsAreRejected) {
  PlanProblem problem;
  EXPECT_EQ(find_plans(problem).plans.size(), 1u);  // no blocks: nothing to choose
  problem.blocks = {{}};
  EXPECT_THROW(find_plans(problem), UsageError);
  problem.blocks = {{{-1, 0, 0}}};
  EXPECT_THROW(find_plans(problem), UsageError);
  problem.blocks = {{{1, 0, 0}}};
  EXPECT_THROW(evaluate_plan(problem, {1}), UsageError);
  EXPECT_THROW(evaluate_plan(problem, {}), UsageError);
  problem.classes = {1, 2};
  EXPECT_THROW(find_plans(problem), UsageError);
}

}  // namespace
