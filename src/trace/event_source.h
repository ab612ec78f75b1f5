// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/events/event.h"
#include "core/events/unit_event.h"
#include "core/ledger/post_mortem.h"
#include "trace/event_codec.h"

namespace tidegauge {

/// Events that could not be written (trace/gap.h); `sequence` is the first event after them.
struct TraceGap {
  uint64_t sequence = 0;
  uint64_t lost_events = 0;
  uint64_t lost_steps = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::string reason;
};

/// Events that were dropped on purpose (RecorderOptions::keep).
struct TraceDrop {
  uint64_t sequence = 0;  ///< of the first event that stands for them
  uint64_t events = 0;
  uint64_t steps = 0;
  uint64_t net_events = 0;  ///< how many stand for them
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct TraceTensor {
  std::string dtype;
  std::string shape;  ///< "[2, 3]"
};

struct TraceModule {
  ModuleId id;
  std::string name;
  std::string class_name;  ///< may be empty
};

/// A change of a unit of sharded parameters.
struct TraceUnitEvent {
  uint64_t sequence = 0;  ///< sequence number of the last event before it
  UnitEvent event;
};

/// The events of one run and the names of their ids, in a trace file (Reader) or in memory
/// (MemoryTrace). Analyses read a run through this interface, so both give the same answers.
class EventSource {
 public:
  using VisitEvent = std::function<void(const Event&, uint64_t)>;
  using VisitCoded = std::function<void(const trace::CodedEvent&, uint64_t)>;
  using VisitBatch = std::function<void(std::span<const trace::CodedEvent>, uint64_t)>;

  virtual ~EventSource() = default;

  /// Facts of the run by name: command, host, rank, torch_version, started, ...
  virtual std::map<std::string, std::string> run_facts() = 0;
  /// True if the run ended the recording, false if it was killed.
  virtual bool is_complete() = 0;
  virtual uint64_t event_count() = 0;
  virtual std::vector<TraceGap> gaps() = 0;
  virtual std::vector<TraceDrop> drops() { return {}; }
  virtual std::vector<TraceModule> modules() = 0;
  virtual std::map<OpId, std::string> ops() = 0;
  /// The first tensors of storages, by CodedEvent::tensor.
  virtual std::map<uint32_t, TraceTensor> tensors() = 0;
  /// The stacks by CodedEvent::stack: one frame per line, innermost first.
  virtual std::map<uint32_t, std::string> stacks() = 0;
  /// Names of the units of sharded parameters.
  virtual std::map<UnitId, std::string> units() = 0;
  /// The unit events in order. Invalid entries are left out.
  virtual std::vector<TraceUnitEvent> unit_events() = 0;
  /// Names of parameters and buffers, such as "Net.fc.weight". A tied parameter has one of its
  /// names.
  virtual std::map<StorageId, std::string> parameters() = 0;
  /// The failed allocations, in order.
  virtual std::vector<PostMortem> failures() = 0;

  /// Calls `visit(event, sequence number)` for events `first` to `last`, counted from 1.
  virtual void visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) = 0;
  /// The same with the rows in side tables.
  virtual void visit_trace_events(uint64_t first, uint64_t last, const VisitCoded& visit) = 0;
  /// The fastest way to read all events up to `last`: calls `visit(events, sequence number of the
  /// first)` for each batch.
  virtual void visit_batches(uint64_t last, const VisitBatch& visit) = 0;
};

}  // namespace tidegauge
