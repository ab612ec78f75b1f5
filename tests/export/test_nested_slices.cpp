// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "export/nested_slices.h"

namespace tidegauge {
namespace {

/// Slices are letters; a begin is "[A", a continued one "<A", an end "]".
struct Drawing {
  std::string text;
  NestedSlices slices{[&](ThreadId, const Slice& slice, bool is_continued) {
                        text += is_continued ? '<' : '[';
                        text += static_cast<char>(slice.id);
                      },
                      [&](ThreadId) { text += ']'; }};

  void begin(char name, uint16_t thread = 1) { slices.begin(ThreadId(thread), slice(name)); }
  void end(char name, uint16_t thread = 1) { slices.end(ThreadId(thread), slice(name)); }
  static Slice slice(char name) {
    return {Slice::Kind::Module, Phase::Forward, static_cast<uint32_t>(name)};
  }
};

TEST(NestedSlices, NestedSlicesAreUnchanged) {
  Drawing drawing;
  for (const char name : {'A', 'B'}) drawing.begin(name);
  for (const char name : {'B', 'A'}) drawing.end(name);
  EXPECT_EQ(drawing.text, "[A[B]]");
}

TEST(NestedSlices, SliceCutByItsParentIsContinued) {
  Drawing drawing;
  for (const char name : {'A', 'B', 'C'}) drawing.begin(name);
  for (const char name : {'A', 'C', 'B'}) drawing.end(name);
  EXPECT_EQ(drawing.text, "[A[B[C]]]<B<C]]");
}

TEST(NestedSlices, AnotherThreadCanEndASlice) {
  Drawing drawing;
  drawing.begin('A', 1);
  drawing.begin('B', 2);
  drawing.end('A', 2);
  EXPECT_EQ(drawing.text, "[A[B]");
  drawing.end('X', 2);  // never began
  EXPECT_EQ(drawing.text, "[A[B]");
  drawing.slices.end_all();
  EXPECT_EQ(drawing.text, "[A[B]]");
}

TEST(NestedSlices, DepthOfDamagedTraceIsLimited) {
  Drawing drawing;
  for (int i = 0; i < 10'000; ++i) drawing.begin('A');
  drawing.slices.end_all();
  EXPECT_EQ(drawing.text.size(), 3 * NestedSlices::kMaxDepth);
}

TEST(NestedSlices, EveryBeginHasAnEnd) {
  std::mt19937 random(7);
  Drawing drawing;
  for (int i = 0; i < 20'000; ++i) {
    const auto name = static_cast<char>('A' + random() % 6);
    const auto thread = static_cast<uint16_t>(1 + random() % 3);
    random() % 2 == 0 ? drawing.begin(name, thread) : drawing.end(name, thread);
  }
  drawing.slices.end_all();
  int64_t open = 0;
  for (const char letter : drawing.text) {
    open += letter == '[' || letter == '<' ? 1 : letter == ']' ? -1 : 0;
    ASSERT_GE(open, 0);
  }
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace tidegauge
