// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "allocator/allocator_options.h"
#include "allocator/device_trace.h"
#include "allocator/packed_requests.h"
#include "allocator/run_figures.h"
#include "core/events/event.h"
#include "core/util/flat_table.h"
#include "tidegauge/category.h"

namespace tidegauge {

/// The stream of a category's memory on a device. FSDP2 uses separate streams for the buffers of
/// its collectives; all other memory belongs to stream 0.
uint16_t side_stream(Category category);

/// From this event on, the allocator has reserved this much.
struct ReservedChange {
  uint64_t sequence = 0;
  int64_t reserved_bytes = 0;
};

/// Figures of torch.cuda.memory_stats.
struct StepFigures {
  int64_t requested_bytes = 0;
  int64_t allocated_bytes = 0;
  int64_t active_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t segments = 0;  ///< at the end; expandable ones do not count

  friend bool operator==(const StepFigures&, const StepFigures&) = default;
};

struct SimulatedRun {
  RunFigures figures;
  StepFigures before_steps;        ///< when the first step begins, or at the end without steps
  std::vector<StepFigures> steps;  ///< peaks of each step
  int64_t retries = 0;  ///< requests for which the allocator freed cached segments and asked again
  size_t requests_to_peak = 0;           ///< requests up to the moment of `unused_at_peak_bytes`
  std::vector<ReservedChange> reserved;  ///< in the order of events
};

/// The storages of one device in a tracked run, as requests to a caching allocator. The run itself
/// may have used any device.
///
///   birth                          request of its bytes; none for an empty storage
///   resize                         request of the new bytes, then free of the old ones
///   birth on a stream              request on that stream
///   buffer of an FSDP2 collective  request on a side stream, as FSDP2 does on a device
///   on the host
///   memory that only the host's    none (workspaces of CPU kernels), until a tensor that uses the
///   allocator reported             memory is observed
///   step marker                    none; the peaks of the next step restart
///
/// Add the events once, then simulate any number of times.
class RequestStream {
 public:
  /// `device`: the device whose storages count.
  explicit RequestStream(Device device) : device_(device) {}

  /// Call it for the events of a run, in order. `sequence`: the number of the event.
  void add(const Event& event, uint64_t sequence = 0);

  size_t request_count() const { return requests_.size(); }
  /// Requests larger than torch's limit count as out of memory.
  RunFigures simulate(const AllocatorOptions& options) const { return replay(options).figures; }
  SimulatedRun replay(const AllocatorOptions& options) const;
  /// The segments after the first `request_count` requests.
  Layout layout_after(size_t request_count, const AllocatorOptions& options) const;
  /// The segments at the moment to which `unused_at_peak_bytes` of the figures refers.
  Layout layout_at_peak(const AllocatorOptions& options) const {
    return layout_after(replay(options).requests_to_peak, options);
  }

 private:
  struct LiveRequest {
    StorageId id;
    int64_t size_bytes = 0;
    size_t request = 0;  // index in requests_
    uint32_t slot = 0;
    StreamId stream;
    bool is_requested = false;
  };

  struct Run {
    SimulatedRun simulated;
    Layout final_layout;
  };

  /// Simulates the first `request_count` requests.
  Run run(const AllocatorOptions& options, size_t request_count) const;
  void request(LiveRequest& live, int64_t size_bytes);
  void release(LiveRequest& live);
  void set_stream(const LiveRequest& live, Role role);

  Device device_;
  FlatTable<LiveRequest, &LiveRequest::id> live_;
  PackedRequests requests_;
  std::unordered_map<size_t, uint16_t> side_streams_;  // of requests, by index; labels tell them
  std::vector<size_t> step_begins_;                    // the number of requests before each step
  std::vector<uint32_t> free_slots_;
  uint64_t sequence_ = 0;    // of the last event
  uint32_t slot_count_ = 0;  // the highest number of slots in use at the same time
};

}  // namespace tidegauge
