// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/events/event.h"

namespace tidegauge {

/// An interval of time: a module call, an optimizer step or a collective.
struct Slice {
  enum class Kind : uint8_t { Module, OptimizerStep, Collective };
  Kind kind{};
  Phase phase{};    ///< phase of the module
  uint32_t id = 0;  ///< id of the module, or of the op of a collective

  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Makes slices nest within each thread, as viewers require. Backward ends calls out of order: the
/// slices still open inside the one that ends are ended with it and continued as new slices.
///
///   input    [A   [B   A]   B]
///   output   [A   [B B]A][B B]
class NestedSlices {
 public:
  /// `is_continued`: the slice continues one that was cut.
  using Begin = std::function<void(ThreadId, const Slice&, bool is_continued)>;
  using End = std::function<void(ThreadId)>;
  NestedSlices(Begin begin, End end) : begin_(std::move(begin)), end_(std::move(end)) {}

  /// Deeper slices are dropped: only a damaged trace has them.
  static constexpr size_t kMaxDepth = 512;

  void begin(ThreadId thread, const Slice& slice);
  /// Also ends a slice that another thread began, as autograd does. No effect if none is open.
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
