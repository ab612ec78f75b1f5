// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>

#include "capture/compat/torch_thread.h"
#include "capture/storages/live_set.h"
#include "capture/storages/registered_storage.h"
#include "core/events/event_factory.h"
#include "core/ledger/backlog.h"

namespace tidegauge {

/// The events of one listener that are not applied yet, and the LiveSet of their births.
///
/// Births and frees are the most frequent events. To a listener that only queues them, capture/fast
/// makes no call: it appends them to the listener's log (CaptureListener::State::log), and calls
/// CaptureListener::make_room if the log has none. Guarded by the lock of StorageRegistry.
class CaptureLog {
 public:
  // The thread and time of the next events. The listener sets the time at modules, nodes and steps
  // only: reading the clock for each storage would cost more than everything else.

  void set_thread() { thread_ = ThreadId(static_cast<uint16_t>(torch_thread::id())); }
  void set_time(int64_t time_ns) { time_ns_ = time_ns; }
  ThreadId thread() const { return thread_; }
  int64_t time_ns() const { return time_ns_; }
  events::Origin origin(Device device = {}) const { return {time_ns_, thread_, device}; }

  /// True if one more event can be appended.
  bool has_room() const { return backlog_.has_room() && live_.has_room(); }
  /// Makes room by growing, whatever the size.
  void grow() {
    if (!backlog_.has_room()) backlog_.grow();
    if (!live_.has_room()) live_.grow();
  }
  /// True if the listener should apply the events and drop the dead births before the log grows.
  bool is_full() const { return backlog_.is_full() || live_.is_full(); }

  // The functions below require `has_room`.

  /// `fill(event)` writes the event in place.
  template <typename Fill>
  void append(EventKind kind, Condition condition, Fill&& fill) {
    backlog_.add_in_room(kind, condition, [&](Event& event) {
      event.time_ns = time_ns_;
      event.thread = thread_;
      fill(event);
    });
  }
  /// StorageBorn, without a stack.
  void append_birth(const RegisteredStorage& record, const c10::TensorImpl* tensor,
                    uint8_t birth_facts, OpId op, StreamId stream) {
    set_thread();
    live_.add_in_room(record.id, op, tensor, {});
    append(EventKind::StorageBorn, Condition::None, [&](Event& event) {
      event.storage = record.id;
      event.size_bytes = record.size_bytes;
      event.device = record.device;
      event.birth_facts = birth_facts;
      event.op = op;
      event.stream = stream;
    });
  }
  /// StorageFreed. No effect if the listener does not know the storage.
  void append_free(StorageId id, bool by_backward) {
    append(EventKind::StorageFreed, by_backward ? Condition::IsFreedByBackward : Condition::IsAlive,
           [&](Event& event) { event.storage = id; });
  }

  Backlog& backlog() { return backlog_; }
  const Backlog& backlog() const { return backlog_; }
  LiveSet& live() { return live_; }
  const LiveSet& live() const { return live_; }

 private:
  int64_t time_ns_ = 0;
  ThreadId thread_;
  Backlog backlog_;
  LiveSet live_;
};

}  // namespace tidegauge
