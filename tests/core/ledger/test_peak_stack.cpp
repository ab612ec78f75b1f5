// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>

#include "core/ledger/peak_stack.h"

namespace tidegauge {
namespace {

Instant at(uint64_t sequence) { return {sequence, static_cast<int64_t>(sequence) * 10}; }

TEST(PeakStack, PeakIsTheHighestMomentWithItsSplit) {
  PeakStack stack(1);
  stack.add(Category::Parameter, 10, at(1));
  stack.add(Category::Activation, 30, at(2));
  stack.remove(Category::Activation, 30, at(3));
  stack.add(Category::Temp, 20, at(4));
  const Moment peak = stack.peak(0, at(4));
  EXPECT_EQ(peak.total_bytes, 40);
  EXPECT_EQ(peak.at, at(2));
  EXPECT_EQ(peak.split[Category::Activation], 30);
  EXPECT_EQ(peak.split[Category::Temp], 0);
}

TEST(PeakStack, FirstOfTwoEqualMomentsWins) {
  PeakStack stack(1);
  stack.add(Category::Activation, 30, at(1));
  stack.remove(Category::Activation, 30, at(2));
  stack.add(Category::Temp, 30, at(3));
  EXPECT_EQ(stack.peak(0, at(3)).at, at(1));
  EXPECT_EQ(stack.peak(0, at(3)).split[Category::Activation], 30);
}

TEST(PeakStack, FirstOfTwoEqualMomentsWinsAcrossFrames) {
  PeakStack stack(1);
  stack.add(Category::Activation, 30, at(1));
  stack.remove(Category::Activation, 10, at(2));
  stack.open(at(3));
  stack.add(Category::Temp, 10, at(4));
  EXPECT_EQ(stack.close(1, at(5)).at, at(4));
  EXPECT_EQ(stack.peak(0, at(5)).at, at(1));
}

TEST(PeakStack, ParentSeesPeakOfChildThatClosedFirst) {
  PeakStack stack(1);
  stack.open(at(1));
  stack.open(at(2));
  stack.add(Category::Temp, 100, at(3));
  stack.remove(Category::Temp, 60, at(4));
  EXPECT_EQ(stack.close(2, at(5)).total_bytes, 100);
  EXPECT_EQ(stack.close(1, at(6)).total_bytes, 100);
  EXPECT_EQ(stack.peak(0, at(6)).total_bytes, 100);
}

TEST(PeakStack, ParentThatClosesFirstSeesPeakOfItsOpenChild) {
  PeakStack stack(1);
  stack.open(at(1));
  stack.open(at(2));
  stack.add(Category::Temp, 100, at(3));
  stack.remove(Category::Temp, 60, at(4));
  EXPECT_EQ(stack.close(1, at(5)).total_bytes, 100);  // out of order, as backward does
  stack.remove(Category::Temp, 40, at(6));
  EXPECT_EQ(stack.close(1, at(7)).total_bytes, 100);  // the child moved down
}

TEST(PeakStack, ChildDoesNotSeeEarlierPeaks) {
  PeakStack stack(1);
  stack.add(Category::Temp, 100, at(1));
  stack.remove(Category::Temp, 90, at(2));
  stack.open(at(3));
  stack.add(Category::Temp, 5, at(4));
  EXPECT_EQ(stack.close(1, at(5)).total_bytes, 15);
}

TEST(PeakStack, FrameWithoutChangesPeaksWhereItOpened) {
  PeakStack stack(1);
  stack.add(Category::Parameter, 7, at(1));
  stack.open(at(2));
  const Moment peak = stack.close(1, at(3));
  EXPECT_EQ(peak.total_bytes, 7);
  EXPECT_EQ(peak.at, at(2));
  EXPECT_EQ(peak.split[Category::Parameter], 7);
}

TEST(PeakStack, ClosingTheOldestFrameKeepsPeaksOfYoungerOnes) {
  PeakStack stack(1);
  stack.add(Category::Temp, 100, at(1));
  stack.remove(Category::Temp, 100, at(2));
  stack.open(at(3));
  stack.add(Category::Temp, 20, at(4));
  EXPECT_EQ(stack.close(0, at(5)).total_bytes, 100);
  EXPECT_EQ(stack.peak(0, at(6)).total_bytes, 20);
}

TEST(PeakStack, RelabelFromNowLeavesThePeakUnchanged) {
  PeakStack stack(1);
  stack.add(Category::Temp, 10, at(1));
  stack.move(Category::Temp, Category::Optstate, 10, at(2));
  EXPECT_EQ(stack.peak(0, at(2)).split[Category::Temp], 10);
  EXPECT_EQ(stack.split()[Category::Optstate], 10);
}

TEST(PeakStack, RelabelSinceBirthChangesAPeakThatIsStillCurrent) {
  PeakStack stack(1);
  stack.add(Category::Temp, 10, at(1));
  stack.correct(Category::Temp, Category::Gradient, 10);
  stack.remove(Category::Gradient, 10, at(3));
  EXPECT_EQ(stack.peak(0, at(3)).split[Category::Gradient], 10);
  EXPECT_EQ(stack.peak(0, at(3)).at, at(1));
  EXPECT_EQ(stack.peak(0, at(3)).state_sequence, 2u);
}

TEST(PeakStack, TotalBeyond63BitsIsRejected) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  PeakStack stack(1);
  EXPECT_TRUE(stack.add(Category::Temp, kMax, at(1)));
  EXPECT_FALSE(stack.add(Category::Other, 1, at(2)));
  EXPECT_EQ(stack.total_bytes(), kMax);
  EXPECT_EQ(stack.split()[Category::Other], 0);
}

}  // namespace
}  // namespace tidegauge
