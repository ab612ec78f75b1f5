// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/events/ids.h"
#include "core/modules/call_block.h"

namespace tidegauge {

/// The module calls of one thread, and which of them made a given autograd node.
///
/// Autograd numbers the nodes that a thread makes. Whenever a module begins or ends, the log notes
/// the number that the next node will get (a switch point); a node belongs to the call of the last
/// switch point at or below its number:
///
///     calls     Net──────┐  fc1──────┐            fc2────┐
///     nodes              0     1   2    3   4         5      6
///     switches  0:Net  1:fc1        3:Net         5:fc2  6:Net
///
/// So no node is hooked, nothing is done per node, and lookups find the answer later.
///
/// An outermost call with all calls below it is one CallBlock. A recompute in backward is a block
/// of its own; its `base` says within which calls it happens. Blocks nest like brackets. A block
/// lives while a CallRef holds it (the graph does, by a hook on the outputs' nodes) or while it is
/// one of the newest kRecentBlocks. So a training loop keeps nothing, and a graph that is kept for
/// long still knows its modules.
///
/// A call that makes no node (Identity, Dropout(0)) passes a tensor on. Its backward is the moment
/// before the node that made that tensor runs: the log notes it as a stop before that node.
///
/// Which calls are open in a stream of events is another question: see OpenCalls. The log's own
/// open calls are only those of one thread's forward, with their autograd numbers.
///
/// Not thread-safe: the owner locks.
class CallLog {
 public:
  static constexpr size_t kRecentBlocks = 64;

  /// True if a call entered now under autograd task `task` (-1: forward) needs `open_block` first.
  bool needs_block(int64_t task) const { return open_.empty() || open_.back()->task_ != task; }
  /// `base`: the modules within which the block happens, outermost first.
  void open_block(int64_t task, uint64_t sequence, std::span<const ModuleId> base,
                  BlockKind kind = BlockKind::kCall);
  /// Closes the innermost region and all calls still open inside it. kCall if no region is open.
  BlockKind close_region(uint64_t sequence);

  struct OpenCall {
    size_t block;  ///< position among the open blocks
    uint32_t call;
    bool is_outermost;  ///< of its block
  };
  OpenCall enter(ModuleId module, uint64_t sequence) {
    CallBlock& block = *open_.back();
    const bool is_outermost = block.current_ == block.base_;
    block.calls_.push_back({module, block.current_, sequence});
    block.switch_to(sequence, static_cast<uint32_t>(block.calls_.size() - 1));
    return {open_.size() - 1, block.current_, is_outermost};
  }
  /// Leaves an open call, and all calls still open inside it.
  void leave(const OpenCall& open, uint64_t sequence) {
    while (open_.size() > open.block + 1) close_back(sequence);
    CallBlock& block = *open_.back();
    block.switch_to(sequence, block.calls_[open.call].parent);
    if (block.current_ == block.base_ && block.kind_ == BlockKind::kCall) close_back(sequence);
  }
  /// True if no node was made since the call was entered.
  bool is_silent(const OpenCall& open, uint64_t sequence) const {
    return open_[open.block]->calls_[open.call].begin == sequence;
  }
  /// The call passes on the output of the node with this number. Ignored if the node is not of the
  /// call's block.
  void add_stop(const OpenCall& open, uint64_t sequence);
  /// Closes all open calls (the tracker stopped within them). `sequence` 0: unknown, as only the
  /// thread itself can read it.
  void leave_all(uint64_t sequence);

  /// The innermost open call of `module`.
  std::optional<OpenCall> find_open(ModuleId module) const {
    for (size_t i = open_.size(); i-- > 0;) {
      const CallBlock& block = *open_[i];
      for (uint32_t call = block.current_; call != block.base_; call = block.calls_[call].parent) {
        const CallBlock::Call& candidate = block.calls_[call];
        if (candidate.module == module) return OpenCall{i, call, candidate.parent == block.base_};
      }
    }
    return std::nullopt;
  }
  CallRef ref(const OpenCall& open) const { return {open_[open.block], open.call}; }
  /// Appends the modules of all open calls, outermost first.
  void append_open(std::vector<ModuleId>& modules) const;
  bool has_open() const { return !open_.empty(); }

  /// The call that made the node with this number; empty if it was made outside of all calls.
  /// `range` becomes numbers around it for which a closed block gives the same answer.
  CallRef find(uint64_t sequence, SequenceRange* range = nullptr) const;
  /// The newest call of `module` among the recent blocks. A call of a recompute whose nodes are
  /// thrown away counts only if there is no other.
  CallRef find_latest(ModuleId module) const;
  /// Calls `visit` for the module of each remembered call.
  void visit_modules(const std::function<void(ModuleId)>& visit) const;
  /// Keeps only blocks that a CallRef holds (the thread ended). False if there are none.
  bool keep_held_only();

 private:
  struct RememberedBlock {
    uint64_t begin;
    std::weak_ptr<CallBlock> block;
  };

  void close_back(uint64_t sequence) {
    open_.back()->end_ = sequence;
    open_.pop_back();
  }
  void drop_expired();

  std::vector<std::shared_ptr<CallBlock>> open_;
  std::vector<RememberedBlock> blocks_;  // by begin, ascending
  size_t drop_at_ = 2 * kRecentBlocks;
  std::deque<std::shared_ptr<CallBlock>> recent_;
};

}  // namespace tidegauge
