// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/allocator_options.h"
#include "allocator/device_trace.h"
#include "allocator/run_figures.h"
#include "core/events/event.h"
#include "core/util/flat_table.h"
#include "tidegauge/category.h"

namespace tidegauge {

/// The stream that memory of a category would be of on a device: FSDP2 copies into the buffers of
/// its collectives on streams of their own, all else is of stream 0.
uint16_t side_stream(Category category);

struct SimulatedRun {
  RunFigures figures;
  int64_t retries = 0;  ///< requests for which the allocator freed cached segments and asked again
  size_t requests_to_peak = 0;  ///< up to the moment that `unused_at_peak_bytes` is of
};

/// What one device is asked for in a run that a tracker has seen, wherever that ran: the storages
/// of one device of the events, as requests to a caching allocator.
///
///   a birth                        a request of its bytes; none for a storage of no bytes
///   a resize                       a request of the new bytes, then a free of the old
///   on a stream                    a request of that stream
///   on the host, buffers of        requests of a side stream each, as FSDP2 makes them on a device
///   FSDP2's collectives
///   what only the allocator of     left out: workspaces of CPU kernels. What a tensor is found
///   the host has shown             for later is requested then
///
/// Fed once, simulated as often as there are questions.
class RequestStream {
 public:
  /// `device`: whose storages are taken.
  explicit RequestStream(Device device) : device_(device) {}

  /// The events of a run, in order.
  void add(const Event& event);

  size_t request_count() const { return requests_.size(); }
  /// Sizes that no allocator could ever be asked for are counted as out of memory.
  RunFigures simulate(const AllocatorOptions& options) const { return replay(options).figures; }
  SimulatedRun replay(const AllocatorOptions& options) const;
  /// The segments after the first `request_count` requests.
  Layout layout_after(size_t request_count, const AllocatorOptions& options) const;
  /// The segments at the moment that `unused_at_peak_bytes` of the figures is of.
  Layout layout_at_peak(const AllocatorOptions& options) const {
    return layout_after(replay(options).requests_to_peak, options);
  }

 private:
  /// A request of `size_bytes`, or of 0: the free of the one before with the same `slot`.
  struct Request {
    int64_t size_bytes;
    uint32_t slot;
    uint16_t stream;
  };
  struct Live {
    StorageId id;
    int64_t size_bytes = 0;
    size_t request = 0;  // its place in requests_
    StreamId stream;
    bool is_requested = false;
  };

  struct Run {
    SimulatedRun simulated;
    Layout final_layout;
  };

  /// Of the first `request_count` requests.
  Run run(const AllocatorOptions& options, size_t request_count) const;
  void request(Live& live, int64_t size_bytes);
  void release(Live& live);
  void set_stream(const Live& live, Role role);

  Device device_;
  FlatTable<Live, &Live::id> live_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_slots_;
  uint32_t slot_count_ = 0;  // as many as were ever in use at once
};

}  // namespace tidegauge
