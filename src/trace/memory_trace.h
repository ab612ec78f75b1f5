// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/events/event_sink.h"
#include "trace/event_source.h"
#include "trace/tensor_ids.h"
#include "trace/writer.h"

namespace tidegauge {

/// A trace in memory. It receives the events of one tracker and is read like a trace file. It is
/// for short runs without a trace file, such as simulated training steps.
///
///   tracker --EventSink--> MemoryTrace --EventSource--> analyses
///                               '--save()--> trace file
///
/// Memory: 56 bytes per event. Read it after the tracker was exited, from one thread at a time.
class MemoryTrace : public EventSink, public EventSource {
 public:
  /// `facts` are added to the facts that a Recorder finds itself (command, host, started, ...).
  explicit MemoryTrace(const std::map<std::string, std::string>& facts = {});
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;

  /// Writes the trace file that a Recorder would have written. Throws IoError if it cannot be
  /// written.
  void save(const std::string& path, bool overwrites) const;
  /// The number of events for which there was no memory.
  uint64_t lost_events() const { return lost_events_; }

  void record(const Event& event, const TensorFacts* first_tensor, StackId stack) noexcept override;
  void record_failure(const Event& event, const PostMortem& post_mortem) noexcept override;
  void name_module(ModuleId module, std::string_view name,
                   std::string_view class_name) noexcept override;
  void name_op(OpId op, std::string_view name) noexcept override;
  void name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept override;
  void count_optimizer_step(std::string_view class_name) noexcept override;
  void name_stack(StackId stack, std::string_view frames) noexcept override;
  void name_unit(UnitId unit, std::string_view name) noexcept override;
  void set_fact(std::string_view key, std::string_view value) noexcept override;
  void record_unit(const UnitEvent& event) noexcept override;

  std::map<std::string, std::string> run_facts() override { return facts_; }
  bool is_complete() override { return true; }
  uint64_t event_count() override { return events_.size(); }
  std::vector<TraceGap> gaps() override { return {}; }
  std::vector<TraceModule> modules() override;
  std::map<OpId, std::string> ops() override { return names_.ops; }
  std::map<uint32_t, TraceTensor> tensors() override;
  std::map<uint32_t, std::string> stacks() override;
  std::map<UnitId, std::string> units() override { return names_.units; }
  std::vector<TraceUnitEvent> unit_events() override;
  std::map<StorageId, std::string> parameters() override;
  std::vector<PostMortem> failures() override;
  void visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) override;
  void visit_trace_events(uint64_t first, uint64_t last, const VisitCoded& visit) override;
  void visit_batches(uint64_t last, const VisitBatch& visit) override;

 private:
  template <typename Change>
  void change(Change change) noexcept;

  std::map<std::string, std::string> facts_;
  std::vector<trace::CodedEvent> events_;
  std::vector<trace::PlacedUnitEvent> units_;
  trace::Names names_;
  trace::TensorIds tensors_;
  uint64_t lost_events_ = 0;
};

}  // namespace tidegauge
