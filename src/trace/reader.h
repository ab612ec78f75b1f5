// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/events/category.h"
#include "core/events/event.h"
#include "core/ledger/ledger.h"
#include "core/ledger/post_mortem.h"
#include "trace/event_source.h"

namespace tidegauge {

/// One storage, from its birth to its free.
struct TraceStorage {
  uint64_t born = 0;   ///< sequence number
  uint64_t freed = 0;  ///< sequence number; 0: not freed
  int64_t born_ns = 0;
  int64_t freed_ns = 0;
  StorageId id;
  int64_t size_bytes = 0;  ///< its largest size
  std::string device;
  Category category{};  ///< the last one
  uint32_t step = 0;
  ModuleId module;        ///< the owner, or the module that was running at the birth; 0: none
  std::string op;         ///< empty if unknown
  std::string dtype;      ///< dtype of the first tensor; empty if unknown
  std::string shape;      ///< "[2, 3]"
  std::string parameter;  ///< the name of a parameter or buffer: "Net.fc.weight"
  std::string stack;      ///< of the allocation: one frame per line, innermost first; may be empty
};

/// Reads a trace file. `replay` applies its events to the same Ledger that trackers use.
///
/// Every function may throw IoError, or FormatError if the file is damaged, truncated, newer or not
/// a trace. Use a Reader from one thread at a time. A file that is still being written can be read
/// up to its last batch.
class Reader : public EventSource {
 public:
  explicit Reader(const std::string& path);
  ~Reader() override;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::map<std::string, std::string> run_facts() override;
  bool is_complete() override;
  uint64_t event_count() override;
  std::vector<TraceGap> gaps() override;
  std::vector<TraceDrop> drops() override;
  std::vector<TraceModule> modules() override;
  std::map<OpId, std::string> ops() override;
  std::map<uint32_t, TraceTensor> tensors() override;
  std::map<uint32_t, std::string> stacks() override;
  std::map<UnitId, std::string> units() override;
  std::vector<TraceUnitEvent> unit_events() override;
  std::map<StorageId, std::string> parameters() override;
  std::vector<PostMortem> failures() override;
  /// The number of optimizer steps by class of optimizer.
  std::map<std::string, int64_t> optimizer_steps();

  /// These three read only the batches with the requested events, one batch at a time.
  void visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) override;
  void visit_trace_events(uint64_t first, uint64_t last, const VisitCoded& visit) override;
  void visit_batches(uint64_t last, const VisitBatch& visit) override;
  /// How many events all functions of this object have read so far.
  uint64_t pass_count() const;
  /// Applies the events up to `last` to a new ledger, which then has the state that the tracker
  /// had.
  void replay(Ledger& ledger, uint64_t last = UINT64_MAX);

  /// The storages that were alive after event `sequence`, largest first, at most `limit`.
  std::vector<TraceStorage> storages_alive_at(uint64_t sequence, size_t limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
