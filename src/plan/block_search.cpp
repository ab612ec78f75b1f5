// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tidegauge/errors.h"
#include "tidegauge/plan.h"

namespace tidegauge {
namespace {

/// A plan for the blocks from one to the last, as a list: its first choice, then `next` in the
/// points of the block after it.
struct Point {
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
  int32_t choice = 0;
  uint32_t next = 0;
};
using Points = std::vector<Point>;

void check(const PlanProblem& problem) {
  if (!problem.classes.empty() && problem.classes.size() != problem.blocks.size()) {
    throw UsageError("a plan has " + std::to_string(problem.blocks.size()) + " blocks but " +
                     std::to_string(problem.classes.size()) + " classes; give one for each block");
  }
  for (size_t i = 0; i < problem.blocks.size(); ++i) {
    const auto& choices = problem.blocks[i];
    const bool is_valid = std::ranges::all_of(choices, [](const BlockChoice& choice) {
      return choice.kept_bytes >= 0 && choice.working_bytes >= 0 && choice.time_ns >= 0;
    });
    if (choices.empty() || !is_valid) {
      throw UsageError("block " + std::to_string(i) + " of a plan has " +
                       (choices.empty() ? "no choices" : "a negative number") +
                       "; give at least one choice with bytes and times from 0 on");
    }
  }
}

/// Keeps the points that no other beats, by time. The first of equal ones stays.
void keep_best(Points& points) {
  std::ranges::stable_sort(points, [](const Point& a, const Point& b) {
    return std::pair(a.time_ns, a.peak_bytes) < std::pair(b.time_ns, b.peak_bytes);
  });
  size_t kept = 0;
  for (const Point& point : points) {
    if (kept == 0 || point.peak_bytes < points[kept - 1].peak_bytes) points[kept++] = point;
  }
  points.resize(kept);
}

/// Merges points whose times are in the same of `most` equal parts: the slowest of a part has the
/// lowest peak. Returns the width of a part.
int64_t merge(Points& points, size_t most) {
  if (points.size() <= most) return 0;
  const int64_t first = points.front().time_ns;
  const int64_t width = (points.back().time_ns - first) / static_cast<int64_t>(most) + 1;
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    const bool is_last = i + 1 == points.size() || (points[i + 1].time_ns - first) / width !=
                                                       (points[i].time_ns - first) / width;
    if (is_last) points[kept++] = points[i];
  }
  points.resize(kept);
  return width;
}

/// The points of a block, from those of the block after it.
Points extend(const std::vector<BlockChoice>& choices, const Points& after) {
  Points points;
  points.reserve(choices.size() * after.size());
  for (size_t choice = 0; choice < choices.size(); ++choice) {
    const BlockChoice& made = choices[choice];
    for (size_t i = 0; i < after.size(); ++i) {
      points.push_back({std::max(made.working_bytes, made.kept_bytes + after[i].peak_bytes),
                        made.time_ns + after[i].time_ns, static_cast<int32_t>(choice),
                        static_cast<uint32_t>(i)});
    }
  }
  keep_best(points);
  return points;
}

}  // namespace

BlockPlan evaluate_plan(const PlanProblem& problem, const std::vector<int32_t>& choices) {
  check(problem);
  if (choices.size() != problem.blocks.size()) {
    throw UsageError("a plan has " + std::to_string(choices.size()) + " choices for " +
                     std::to_string(problem.blocks.size()) + " blocks; give one for each block");
  }
  BlockPlan plan{choices, problem.floor_bytes, 0};
  int64_t kept = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] < 0 || static_cast<size_t>(choices[i]) >= problem.blocks[i].size()) {
      throw UsageError("block " + std::to_string(i) + " of a plan has no choice " +
                       std::to_string(choices[i]) + " (expected 0 to " +
                       std::to_string(problem.blocks[i].size() - 1) + ")");
    }
    const BlockChoice& made = problem.blocks[i][static_cast<size_t>(choices[i])];
    plan.peak_bytes = std::max(plan.peak_bytes, kept + made.working_bytes);
    plan.time_ns += made.time_ns;
    kept += made.kept_bytes;
  }
  plan.peak_bytes = std::max(plan.peak_bytes, kept + problem.tail_bytes);
  return plan;
}

PlanFront find_plans(const PlanProblem& problem, size_t most_points) {
  check(problem);
  PlanFront front;
  const size_t count = problem.blocks.size();
  std::vector<Points> points(count + 1);
  points[count] = {{problem.tail_bytes, 0, 0, 0}};
  for (size_t i = count; i-- > 0;) {
    points[i] = extend(problem.blocks[i], points[i + 1]);
    front.gap_ns += merge(points[i], std::max<size_t>(most_points, 1));
  }
  for (Point& point : points[0]) point.peak_bytes = std::max(point.peak_bytes, problem.floor_bytes);
  keep_best(points[0]);
  for (const Point& first : points[0]) {
    BlockPlan& plan = front.plans.emplace_back();
    plan.peak_bytes = first.peak_bytes;
    plan.time_ns = first.time_ns;
    const Point* point = &first;
    for (size_t i = 0; i < count; ++i) {
      plan.choices.push_back(point->choice);
      point = &points[i + 1][point->next];
    }
  }
  return front;
}

BlockPlan make_regular(const PlanProblem& problem, const BlockPlan& plan, int64_t budget_bytes) {
  if (problem.classes.empty()) return plan;
  evaluate_plan(problem, plan.choices);  // checks both
  std::map<int32_t, std::vector<size_t>> members;
  for (size_t i = 0; i < problem.classes.size(); ++i) members[problem.classes[i]].push_back(i);
  std::vector<int32_t> choices = plan.choices;
  for (const auto& [number, blocks] : members) {
    const auto& known = problem.blocks[blocks.front()];
    std::vector<int32_t> made;
    made.reserve(blocks.size());
    for (const size_t block : blocks) made.push_back(plan.choices[block]);
    std::ranges::sort(made, [&known](int32_t a, int32_t b) {
      const auto works = [&known](int32_t choice) {
        const auto index = static_cast<size_t>(choice);
        return index < known.size() ? known[index].working_bytes : 0;
      };
      return std::pair(-works(a), a) < std::pair(-works(b), b);
    });
    for (size_t i = 0; i < blocks.size(); ++i) choices[blocks[i]] = made[i];
  }
  BlockPlan regular = evaluate_plan(problem, choices);
  const bool is_good = regular.peak_bytes <= std::max(budget_bytes, plan.peak_bytes);
  return is_good && regular.time_ns <= plan.time_ns ? regular : plan;
}

}  // namespace tidegauge
