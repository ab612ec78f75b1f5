// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>

#include "core/events/step_rule.h"

namespace tidegauge {
namespace {

/// Applies one letter after the other and inserts a `|` where a step begins. `m`: a root module is
/// called; `a`: it is called again; `(` and `)`: an optimizer step begins and ends; `r`: the
/// statistics are reset; `o`: an optimizer is expected.
std::string with_steps(const std::string& run) {
  StepRule rule;
  std::string result;
  for (const char moment : run) {
    const bool begins = (moment == 'm' && rule.note_root_call(/*again=*/false)) ||
                        (moment == 'a' && rule.note_root_call(/*again=*/true)) ||
                        (moment == '(' && rule.note_optimizer_begin());
    if (moment == ')') rule.note_optimizer_end();
    if (moment == 'r') rule.note_statistics_reset();
    if (moment == 'o') rule.expect_optimizer();
    if (begins) result += '|';
    result += moment;
  }
  return result;
}

TEST(StepRule, BeginsWithTheFirstCallAfterAnOptimizerStep) {
  EXPECT_EQ(with_steps("m()a()a()"), "|m()|a()|a()");
  EXPECT_EQ(with_steps("mm()am()a"), "|mm()|am()|a");  // a loss is a root module as well
}

TEST(StepRule, SeveralCallsBeforeAnOptimizerStepAreOneStep) {
  EXPECT_EQ(with_steps("m()aaa()aaa()"), "|m()|aaa()|aaa()");
  EXPECT_EQ(with_steps("omaaa()aaaa()"), "o|maaa()|aaaa()");
}

TEST(StepRule, SeveralOptimizersAreOneStep) {
  EXPECT_EQ(with_steps("m()()()a()()()"), "|m()()()|a()()()");
  EXPECT_EQ(with_steps("m(())a(())"), "|m(())|a(())");
}

TEST(StepRule, WithoutAnOptimizerEveryIterationIsAStep) {
  EXPECT_EQ(with_steps("mmamam"), "|mm|am|am");
  EXPECT_EQ(with_steps("mrmrm"), "|mr|mr|m");
  EXPECT_EQ(with_steps("m()rara()"), "|m()r|ara()");
}

TEST(StepRule, WithoutModulesEveryOptimizerStepIsAStep) { EXPECT_EQ(with_steps("()()"), "|()|()"); }

TEST(StepRule, ModelCallsInsideAnOptimizerStepBeginNoStep) {
  EXPECT_EQ(with_steps("(maa)(aaa)"), "|(maa)(|aaa)");
}

}  // namespace
}  // namespace tidegauge
