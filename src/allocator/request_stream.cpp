// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/request_stream.h"

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

void RequestStream::add(const Event& event) {
  if (event.kind == EventKind::StorageBorn) {
    if (event.device != device_) return;
    const auto [it, is_new] = live_.try_emplace(event.storage);
    if (!is_new) return;
    it->second.size_bytes = event.size_bytes;
    it->second.stream = event.stream;
    if ((event.birth_facts & kFromAllocator) == 0 || device_ != kCpu) {
      request(it->second, event.size_bytes);
    }
    return;
  }
  const auto it = live_.find(event.storage);
  if (it == live_.end()) return;
  Live& live = it->second;
  switch (event.kind) {
    case EventKind::StorageClaimed:
      if (!live.is_requested) request(live, live.size_bytes);
      return;
    case EventKind::StorageRelabelled:
      return set_stream(live, event.role);
    case EventKind::StorageResized: {
      Live old = live;
      live.size_bytes = event.size_bytes;
      if (!old.is_requested && old.size_bytes > 0) return;  // still of the host alone
      live.is_requested = false;
      request(live, event.size_bytes);
      return release(old);
    }
    case EventKind::StorageFreed:
      release(live);
      live_.erase(it);
      return;
    default:
      return;
  }
}

void RequestStream::request(Live& live, int64_t size_bytes) {
  if (size_bytes <= 0) return;
  live.slot = static_cast<uint32_t>(streams_.size());
  live.is_requested = true;
  streams_.push_back(live.stream.value);
  requests_.push_back({live.slot, size_bytes});
}

void RequestStream::release(Live& live) {
  if (std::exchange(live.is_requested, false)) requests_.push_back({live.slot, 0});
}

void RequestStream::set_stream(const Live& live, Role role) {
  // A label comes after the birth, and says what the memory was for all along. On a device the
  // birth says more.
  if (device_ != kCpu || static_cast<uint8_t>(role) >= kRoleCount) return;
  const uint16_t stream = side_stream(category_of(role));
  if (live.is_requested && stream != 0) streams_[live.slot] = stream;
}

SimulatedRun RequestStream::replay(const AllocatorOptions& options) const {
  return run(options, requests_.size()).simulated;
}

Layout RequestStream::layout_at_peak(const AllocatorOptions& options) const {
  return run(options, run(options, requests_.size()).requests_to_peak).final_layout;
}

RequestStream::Run RequestStream::run(const AllocatorOptions& options, size_t request_count) const {
  Run run;
  RunMeter meter;
  AllocatorOptions watched = options;
  // Without the memory of the device a share of it is no limit.
  if (options.total_bytes == kNoLimit) watched.config.per_process_memory_fraction = 1;
  const CachingAllocator* counted = nullptr;
  watched.on_segment_event = [&](const TraceEvent&) {
    if (counted != nullptr) meter.observe_segment(counted->reserved_bytes());
  };
  CachingAllocator allocator(std::move(watched));
  counted = &allocator;
  std::vector<Block*> blocks(streams_.size(), nullptr);
  for (size_t i = 0; i < request_count; ++i) {
    const Request& request = requests_[i];
    Block*& block = blocks[request.slot];
    if (request.size_bytes == 0) {
      if (block != nullptr) allocator.free(std::exchange(block, nullptr));
    } else {
      try {
        block = allocator.malloc(request.size_bytes, streams_[request.slot]);
      } catch (const UsageError&) {
        block = nullptr;
      }
      if (block == nullptr) meter.observe_out_of_memory();
    }
    const MemoryStats& stats = allocator.stats();
    if (meter.observe(stats.reserved_bytes.all().current, stats.active_bytes.all().current,
                      stats.requested_bytes.all().current)) {
      run.requests_to_peak = i + 1;
    }
  }
  run.final_layout = allocator.layout();
  run.simulated = {meter.finish(static_cast<int64_t>(run.final_layout.size())),
                   allocator.stats().num_alloc_retries};
  return run;
}

}  // namespace tidegauge
