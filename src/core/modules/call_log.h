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
/// Autograd numbers the nodes that a thread makes. Whenever a module call begins or ends, the log
/// stores the number of the next node (a switch). A node belongs to the call of the last switch at
/// or below its number:
///
///     calls     Net──────┐  fc1──────┐            fc2────┐
///     nodes              0     1   2    3   4         5      6
///     switches  0:Net  1:fc1        3:Net         5:fc2  6:Net
///
/// So nodes need no hooks, and the forward does no work per node. Backward looks the call up.
///
/// An outermost call with all calls below it is one CallBlock. A recompute in backward is a
/// separate block; its `base` lists the calls in which it runs. Blocks nest like brackets. A block
/// lives while a CallRef holds it (the graph does, with a hook on the nodes of the outputs) or
/// while it is one of the newest kRecentBlocks. So a training loop does not accumulate blocks, and
/// a graph that lives long still has its modules.
///
/// A call that makes no node (Identity, Dropout(0)) passes a tensor on. Its backward is the moment
/// before the node that made the tensor runs. The log stores it as a stop before that node.
///
/// The open calls here are those of the forward of one thread, with their autograd numbers.
/// OpenCalls has the open calls of a stream of events.
///
/// Not thread-safe: the owner must lock.
class CallLog {
 public:
  static constexpr size_t kRecentBlocks = 64;

  /// True if `open_block` must come before a call that is entered in graph task `task` (-1:
  /// forward).
  bool needs_block(int64_t task) const { return open_.empty() || open_.back()->task_ != task; }
  /// `base`: the modules in which the block runs, outermost first.
  void open_block(int64_t task, uint64_t sequence, std::span<const ModuleId> base,
                  BlockKind kind = BlockKind::kCall);
  /// Closes the innermost region and all calls still open inside it. Returns its kind, or kCall if
  /// no region is open.
  BlockKind close_region(uint64_t sequence);

  struct OpenCall {
    size_t block;  ///< position among the open blocks
    uint32_t call;
    bool is_outermost;  ///< the outermost call of its block
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
  /// Records that the call returns the output of the node with this number. No effect if the node
  /// is not in the call's block.
  void add_stop(const OpenCall& open, uint64_t sequence);
  /// Closes all open calls, when the tracker is stopped inside them. `sequence`: the number of the
  /// next node, or 0 if unknown (only the thread itself can read it).
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

  /// The call that made the node with this number; empty if it was made outside of all calls. Sets
  /// `range` to the numbers around it for which a closed block gives the same answer.
  CallRef find(uint64_t sequence, SequenceRange* range = nullptr) const;
  /// The newest call of `module` in the recent blocks. A call in a recompute whose nodes are
  /// discarded is returned only if there is no other.
  CallRef find_latest(ModuleId module) const;
  /// Calls `visit` for the module of each remembered call.
  void visit_modules(const std::function<void(ModuleId)>& visit) const;
  /// Keeps only blocks that a CallRef holds. Call when the thread ends. Returns false if there are
  /// none.
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
