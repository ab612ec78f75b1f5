// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/stream_waits.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

void StreamWaits::add_use(Block* block, int64_t stream, bool in_capture) {
  std::vector<Use>& streams = uses_[block].streams;
  const auto known = std::find_if(streams.begin(), streams.end(),
                                  [&](const Use& use) { return use.stream == stream; });
  if (known == streams.end()) {
    streams.push_back({stream, in_capture});
  } else {
    known->in_capture |= in_capture;
  }
}

void StreamWaits::start(Block* block, bool in_capture) {
  if (policy_ == DeferredFrees::ByCaller) return;
  if (in_capture) {
    after_capture_.push_back(block);
  } else {
    record_events(block);
  }
}

void StreamWaits::record_events(Block* block) {
  Uses& uses = uses_[block];
  for (const Use& use : uses.streams) {
    queues_[use.stream].push_back({block, /*is_done=*/false});
    ++uses.open_events;
  }
}

std::vector<Block*> StreamWaits::poll(bool is_sync) {
  std::vector<Block*> free;
  for (Block* block : std::exchange(after_capture_, {})) {
    std::erase_if(uses_[block].streams, [](const Use& use) { return use.in_capture; });
    record_events(block);
    if (uses_[block].open_events == 0) free.push_back(block);
  }
  const bool all_done = is_sync || policy_ == DeferredFrees::AtNextMalloc;
  for (auto& [stream, queue] : queues_) {
    while (!queue.empty() && (all_done || queue.front().is_done)) {
      Block* block = queue.front().block;
      queue.pop_front();
      if (--uses_[block].open_events == 0) free.push_back(block);
    }
  }
  return free;
}

void StreamWaits::synchronize_host() {
  for (auto& [stream, queue] : queues_) {
    for (Event& event : queue) event.is_done = true;
  }
}

}  // namespace tidegauge
