// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "core/events/ids.h"

namespace tidegauge {

enum class BlockKind : uint8_t {
  kCall,        ///< an outermost call and all calls below it; ends with that call
  kRegion,      ///< a recompute whose nodes are discarded; ends with close_region
  kKeptRegion,  ///< a recompute whose nodes will run; ends with close_region
};

/// Sequence numbers of autograd nodes; `end` is exclusive.
struct SequenceRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  bool contains(uint64_t sequence) const { return begin <= sequence && sequence < end; }
};

struct ModuleMove;

/// An outermost call of one thread with all calls below it. CallLog explains it.
class CallBlock {
 public:
  /// The modules from the outermost one, including the base, to that of `call`.
  std::vector<ModuleId> chain(uint32_t call) const;
  ModuleId module(uint32_t call) const { return calls_[call].module; }
  /// True if a node of the block's thread with this number can only have been made in this block.
  bool is_only_home_of(uint64_t sequence) const {
    return end_ != UINT64_MAX && !has_inner_ && begin_ <= sequence && sequence < end_;
  }

  /// The call that made the node with this number; kNoCall if none did. Sets `range` to the numbers
  /// around it for which a closed block gives the same answer and which have no stop before them.
  /// `hint`: pass the same variable to each lookup of a backward. The numbers of a backward
  /// decrease, so the next answer is mostly near the last one.
  uint32_t call_of(uint64_t sequence, SequenceRange& range, size_t& hint) const;
  /// Calls `visit(call)` for the calls that pass on the node's output, last call first.
  template <typename Visit>
  void visit_stops(uint64_t sequence, Visit visit) const {
    if (stops_.empty()) return;
    const auto after = std::partition_point(
        stops_.begin(), stops_.end(), [&](const Stop& stop) { return stop.sequence <= sequence; });
    for (auto stop = std::make_reverse_iterator(after); stop != stops_.rend(); ++stop) {
      if (stop->sequence != sequence) return;
      visit(stop->call);
    }
  }

  static constexpr uint32_t kNoCall = UINT32_MAX;

 private:
  friend class CallLog;
  friend void append_move(const CallBlock*, uint32_t, const CallBlock*, uint32_t,
                          std::vector<ModuleMove>&);
  struct Call {
    ModuleId module;
    uint32_t parent;
    uint64_t begin;  // the number that the next node had when the call was entered
  };
  struct Switch {
    uint64_t sequence;
    uint32_t call;
  };
  struct Stop {
    uint64_t sequence;
    uint32_t call;
  };

  /// Reserves as much as the previous block needed: most calls of a module are equally large.
  void reserve_as(const CallBlock& other) {
    calls_.reserve(other.calls_.size());
    switches_.reserve(other.switches_.size());
  }
  void switch_to(uint64_t sequence, uint32_t call) {
    current_ = call;
    if (!switches_.empty() && switches_.back().sequence == sequence) {
      switches_.back().call = call;  // no node was made since, so no lookup needs the old call
    } else {
      switches_.push_back({sequence, call});
    }
  }
  bool is_switch_of(size_t position, uint64_t sequence) const {
    return switches_[position].sequence <= sequence &&
           (position + 1 == switches_.size() || sequence < switches_[position + 1].sequence);
  }
  /// The last switch at or before the number; switches_.size() if there is none.
  size_t find_switch(uint64_t sequence, size_t hint) const;
  void clip_by_stops(uint64_t sequence, SequenceRange& range) const;

  int64_t task_ = -1;
  BlockKind kind_ = BlockKind::kCall;
  bool has_inner_ = false;
  uint64_t begin_ = 0;
  uint64_t end_ = UINT64_MAX;
  uint32_t current_ = kNoCall;
  uint32_t base_ = kNoCall;
  std::vector<Call> calls_;
  std::vector<Switch> switches_;
  std::vector<Stop> stops_;  // by sequence, then by call
  std::shared_ptr<CallBlock> enclosing_;
};

/// One call in a block, or no call if it is empty.
struct CallRef {
  std::shared_ptr<CallBlock> block;
  uint32_t call = 0;

  explicit operator bool() const { return block != nullptr; }
  bool operator==(const CallRef&) const = default;
  std::vector<ModuleId> chain() const {
    return block ? block->chain(call) : std::vector<ModuleId>{};
  }
};

/// A module that is left or entered on the way from one call to another.
struct ModuleMove {
  ModuleId module;
  bool enters = false;

  friend bool operator==(const ModuleMove&, const ModuleMove&) = default;
};

/// Appends the modules that a move from one call to another leaves, innermost first, and then those
/// that it enters, outermost first. A null block means outside of all calls. The bases of blocks do
/// not count.
void append_move(const CallBlock* from_block, uint32_t from, const CallBlock* to_block, uint32_t to,
                 std::vector<ModuleMove>& moves);

}  // namespace tidegauge
