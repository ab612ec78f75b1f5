// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "allocator/allocator_options.h"

namespace tidegauge {

struct Block;

/// Which other streams use a block, and which events they must finish before the block is free.
///
///   free(block) -> one event on each of these streams -> polled at a malloc, in order per stream
///                                                     -> all done: the block is free
///
/// No event can be recorded while a CUDA graph is captured: such blocks wait for the end of the
/// capture, which also ends the uses within it.
class StreamWaits {
 public:
  explicit StreamWaits(DeferredFrees policy) : policy_(policy) {}

  void add_use(Block* block, int64_t stream, bool in_capture);
  /// The owner freed the block.
  void start(Block* block, bool in_capture);
  /// Returns the blocks that are free now; none while a capture runs. `is_sync`: waits for all.
  std::vector<Block*> poll(bool is_sync);
  /// All events so far are finished; the next poll finds them.
  void synchronize_host();
  void forget(Block* block) { uses_.erase(block); }
  /// True if poll() has nothing to do.
  bool is_idle() const { return uses_.empty(); }

 private:
  struct Use {
    int64_t stream;
    bool in_capture;
  };
  struct Uses {
    std::vector<Use> streams;
    int open_events = 0;
  };
  struct Event {
    Block* block;
    bool is_done;
  };

  void record_events(Block* block);

  DeferredFrees policy_;
  std::unordered_map<Block*, Uses> uses_;
  std::map<int64_t, std::deque<Event>> queues_;  // by stream
  std::vector<Block*> after_capture_;
};

}  // namespace tidegauge
