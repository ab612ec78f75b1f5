// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/request_stream.h"

#include <algorithm>
#include <utility>

#include "allocator/caching_allocator.h"
#include "core/ledger/labeller.h"
#include "tidegauge/errors.h"

namespace tidegauge {

uint16_t side_stream(Category category) {
  switch (category) {
    case Category::AllGather:
      return 1;
    case Category::ReduceScatter:
      return 2;
    case Category::AllReduce:
      return 3;
    default:
      return 0;
  }
}

namespace {

StepFigures figures_of(const MemoryStats& stats, int64_t Stat::* member) {
  return {stats.requested_bytes.all().*member, stats.allocated_bytes.all().*member,
          stats.active_bytes.all().*member, stats.reserved_bytes.all().*member,
          stats.segment.all().current};
}

}  // namespace

void RequestStream::add(const Event& event, uint64_t sequence) {
  if (event.kind == EventKind::StepMarker) step_begins_.push_back(requests_.size());
  if (!event.storage) return;
  sequence_ = sequence;
  if (event.kind == EventKind::StorageBorn) {
    if (event.device != device_) return;
    const auto [live, is_new] = live_.insert(event.storage);
    if (!is_new) return;
    live->size_bytes = event.size_bytes;
    live->stream = event.stream;
    if ((event.birth_facts & kFromAllocator) == 0 || device_ != kCpu) {
      request(*live, event.size_bytes);
    }
    return;
  }
  LiveRequest* found = live_.find(event.storage);
  if (found == nullptr) return;
  LiveRequest& live = *found;
  switch (event.kind) {
    case EventKind::StorageClaimed:
      if (!live.is_requested) request(live, live.size_bytes);
      return;
    case EventKind::StorageRelabelled:
      return set_stream(live, event.role);
    case EventKind::StorageResized: {
      LiveRequest old = live;
      live.size_bytes = event.size_bytes;
      if (!old.is_requested && old.size_bytes > 0) return;  // no tensor uses it yet
      live.is_requested = false;
      request(live, event.size_bytes);
      return release(old);
    }
    case EventKind::StorageFreed:
      release(live);
      live_.erase(found);
      return;
    default:
      return;
  }
}

void RequestStream::request(LiveRequest& live, int64_t size_bytes) {
  if (size_bytes <= 0) return;
  uint32_t slot = slot_count_;
  if (free_slots_.empty()) {
    ++slot_count_;
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  live.request = requests_.size();
  live.slot = slot;
  live.is_requested = true;
  requests_.push_back({size_bytes, sequence_, slot, live.stream.value});
}

void RequestStream::release(LiveRequest& live) {
  if (!std::exchange(live.is_requested, false)) return;
  requests_.push_back({.sequence = sequence_, .slot = live.slot});
  free_slots_.push_back(live.slot);
}

void RequestStream::set_stream(const LiveRequest& live, Role role) {
  // A label comes after the birth but applies since the birth. On a device, the birth itself names
  // the stream.
  if (device_ != kCpu || static_cast<uint8_t>(role) >= kRoleCount) return;
  const uint16_t stream = side_stream(category_of(role));
  if (live.is_requested && stream != 0) side_streams_[live.request] = stream;
}

SimulatedRun RequestStream::replay(const AllocatorOptions& options) const {
  return run(options, requests_.size()).simulated;
}

Layout RequestStream::layout_after(size_t request_count, const AllocatorOptions& options) const {
  return run(options, std::min(request_count, requests_.size())).final_layout;
}

RequestStream::Run RequestStream::run(const AllocatorOptions& options, size_t request_count) const {
  Run run;
  RunMeter meter;
  AllocatorOptions watched = options;
  // Without device memory, ignore the memory fraction.
  if (options.total_bytes == kNoLimit) watched.config.per_process_memory_fraction = 1;
  const CachingAllocator* counted = nullptr;
  watched.on_segment_event = [&](const TraceEvent&) {
    if (counted != nullptr) meter.observe_segment(counted->reserved_bytes());
  };
  CachingAllocator allocator(std::move(watched));
  counted = &allocator;
  std::vector<Block*> blocks(slot_count_, nullptr);
  auto step = step_begins_.begin();
  bool is_in_step = false;
  const auto end_step = [&] {
    if (is_in_step) {
      run.simulated.steps.push_back(figures_of(allocator.stats(), &Stat::peak));
    } else {
      run.simulated.before_steps = figures_of(allocator.stats(), &Stat::current);
    }
    allocator.stats().reset_peak();
    is_in_step = true;
  };
  requests_.visit(request_count, [&](size_t i, const Request& request) {
    for (; step != step_begins_.end() && *step == i; ++step) end_step();
    Block*& block = blocks[request.slot];
    if (request.size_bytes == 0) {
      if (block != nullptr) allocator.free(std::exchange(block, nullptr));
    } else {
      try {
        const auto side = side_streams_.find(i);
        block = allocator.malloc(request.size_bytes,
                                 side == side_streams_.end() ? request.stream : side->second);
      } catch (const UsageError&) {
        block = nullptr;
      }
      if (block == nullptr) meter.observe_out_of_memory();
    }
    const MemoryStats& stats = allocator.stats();
    if (meter.observe(stats.reserved_bytes.all().current, stats.active_bytes.all().current,
                      stats.requested_bytes.all().current)) {
      run.simulated.requests_to_peak = i + 1;
    }
    const int64_t reserved_bytes = allocator.reserved_bytes();
    auto& changes = run.simulated.reserved;
    if (reserved_bytes != (changes.empty() ? 0 : changes.back().reserved_bytes)) {
      changes.push_back({request.sequence, reserved_bytes});
    }
  });
  for (; step != step_begins_.end() && *step <= request_count; ++step) end_step();
  end_step();
  run.final_layout = allocator.layout();
  run.simulated.figures = meter.finish(static_cast<int64_t>(run.final_layout.size()));
  run.simulated.retries = allocator.stats().num_alloc_retries;
  return run;
}

}  // namespace tidegauge
