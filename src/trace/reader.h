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
#include "core/events/unit_event.h"

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

namespace trace {
struct CodedEvent;
}

struct TraceTensor {
  std::string dtype;
  std::string shape;  ///< "[2, 3]"
};

struct TraceModule {
  ModuleId id;
  std::string name;
  std::string class_name;  ///< may be empty
};

/// What became of a unit of sharded parameters.
struct TraceUnitEvent {
  uint64_t sequence = 0;  ///< of the last event before it
  UnitEvent event;
};

/// One life of a storage.
struct TraceStorage {
  uint64_t born = 0;   ///< sequence number
  uint64_t freed = 0;  ///< 0: never
  int64_t born_ns = 0;
  int64_t freed_ns = 0;
  StorageId id;
  int64_t size_bytes = 0;  ///< the most that it had
  std::string device;
  Category category{};  ///< the last one
  uint32_t step = 0;
  ModuleId module;        ///< that was running; 0 for none
  std::string op;         ///< empty: no op made it, or it was not seen
  std::string dtype;      ///< of the first tensor; empty if unknown
  std::string shape;      ///< "[2, 3]"
  std::string parameter;  ///< its name if it is one, or a buffer: "Net.fc.weight"
  std::string stack;  ///< of the allocation, one frame a line, the innermost first; may be empty
};

/// Reads a trace file. Live and replayed are one path: `replay` feeds the Ledger that a tracker
/// has.
///
/// Every function may throw FormatError (damaged, foreign, cut off, newer) or IoError. Used by one
/// thread at a time. A file that is still being written can be read up to its last batch.
class Reader {
 public:
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// Facts of the run by name: command, host, rank, torch_version, started, ...
  std::map<std::string, std::string> run_facts();
  /// Whether the run ended the file itself, and was not killed.
  bool is_complete();
  uint64_t event_count();
  std::vector<TraceGap> gaps();
  std::vector<TraceModule> modules();
  std::map<OpId, std::string> ops();
  /// By the number that a CodedEvent has.
  std::map<uint32_t, TraceTensor> tensors();
  /// Names of parameters and buffers, such as "Net.fc.weight"; one of those that are tied.
  std::map<StorageId, std::string> parameters();
  /// Frames of each stack, one a line, the innermost first; by the number that a CodedEvent has.
  std::map<uint32_t, std::string> stacks();

  /// Steps of the optimizers of each class.
  std::map<std::string, int64_t> optimizer_steps();
  /// Names of the units of sharded parameters.
  std::map<UnitId, std::string> units();
  /// In their order. What makes no sense is left out.
  std::vector<TraceUnitEvent> unit_events();
  /// Allocations that failed, in the order in which they did.
  std::vector<PostMortem> failures();

  /// Calls `visit(event, its sequence number)` for events `first` to `last`, counted from 1. Reads
  /// only the batches that hold them, one at a time.
  void visit_events(uint64_t first, uint64_t last,
                    const std::function<void(const Event&, uint64_t)>& visit);
  /// The same, with the numbers of side tables.
  void visit_trace_events(uint64_t first, uint64_t last,
                          const std::function<void(const trace::CodedEvent&, uint64_t)>& visit);
  /// Applies the events up to `last` to a fresh ledger: the state is that of the tracker then.
  void replay(Ledger& ledger, uint64_t last = UINT64_MAX);

  /// The storages that were alive after event `sequence`, the largest first, at most `limit`.
  std::vector<TraceStorage> storages_alive_at(uint64_t sequence, size_t limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
