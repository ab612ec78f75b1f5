// SPDX-License-Identifier: BSD-3-Clause
#include "export/nested_slices.h"

#include <algorithm>

namespace tidegauge {

void NestedSlices::begin(ThreadId thread, const Slice& slice) {
  Stack& stack = stacks_[thread];
  if (stack.size() >= kMaxDepth) return;
  stack.push_back(slice);
  begin_(thread, slice, false);
}

void NestedSlices::end(ThreadId thread, const Slice& slice) {
  if (end_in(thread, stacks_[thread], slice)) return;
  for (auto& [other, stack] : stacks_) {
    if (other != thread && end_in(other, stack, slice)) return;
  }
}

bool NestedSlices::end_in(ThreadId thread, Stack& stack, const Slice& slice) {
  const auto found = std::find(stack.rbegin(), stack.rend(), slice);
  if (found == stack.rend()) return false;
  const auto above = static_cast<size_t>(found - stack.rbegin());
  for (size_t i = 0; i <= above; ++i) end_(thread);
  stack.erase(std::next(found).base());
  for (size_t i = stack.size() - above; i < stack.size(); ++i) begin_(thread, stack[i], true);
  return true;
}

void NestedSlices::end_all() {
  for (auto& [thread, stack] : stacks_) {
    for (; !stack.empty(); stack.pop_back()) end_(thread);
  }
}

}  // namespace tidegauge
