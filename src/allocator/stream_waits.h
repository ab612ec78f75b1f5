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

/// Which streams use a block besides its own, and what each must finish before the block is free.
///
///   free(block) -> one event on each of these streams -> polled at a malloc, in order per stream
///                                                     -> all done: the block is free
///
/// While a CUDA graph is captured no event can be recorded: such blocks wait for its end, and uses
/// within the capture are over then.
class StreamWaits {
 public:
  explicit StreamWaits(DeferredFrees policy) : policy_(policy) {}

  void add_use(Block* block, int64_t stream, bool in_capture);
  /// The block was given back by its owner.
  void start(Block* block, bool in_capture);
  /// Blocks that are free now. Nothing is done while a capture runs. `is_sync` waits for all.
  std::vector<Block*> poll(bool is_sync);
  /// Events so far are done when next polled.
  void synchronize_host();
  void forget(Block* block) { uses_.erase(block); }
  /// Whether poll() could have anything to do.
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
