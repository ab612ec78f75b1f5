// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/events/event.h"

namespace tidegauge {

/// Something with a begin and an end: a call of a module, a step of an optimizer, a collective.
struct Slice {
  enum class Kind : uint8_t { Module, OptimizerStep, Collective };
  Kind kind{};
  Phase phase{};    ///< of a module
  uint32_t id = 0;  ///< of the module, or of the op of a collective

  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Makes slices nest within each thread, as viewers want them. Backward ends calls out of order:
/// those that are still open above the one that ends are ended with it, and go on as new ones.
///
///   as told     [A   [B   A]   B]
///   as emitted  [A   [B B]A][B B]
class NestedSlices {
 public:
  /// `is_continued`: the slice was begun before.
  using Begin = std::function<void(ThreadId, const Slice&, bool is_continued)>;
  using End = std::function<void(ThreadId)>;
  NestedSlices(Begin begin, End end) : begin_(std::move(begin)), end_(std::move(end)) {}

  /// What a run cannot be so deep in is left out: the events of a broken trace.
  static constexpr size_t kMaxDepth = 512;

  void begin(ThreadId thread, const Slice& slice);
  /// Also of a slice that another thread began, as autograd does. Without effect if there is none.
  void end(ThreadId thread, const Slice& slice);
  void end_all();

 private:
  using Stack = std::vector<Slice>;
  bool end_in(ThreadId thread, Stack& stack, const Slice& slice);

  Begin begin_;
  End end_;
  std::map<ThreadId, Stack> stacks_;
};

}  // namespace tidegauge
