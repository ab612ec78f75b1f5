// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/events/category.h"
#include "core/modules/open_calls.h"
#include "trace/event_codec.h"

namespace tidegauge::trace {

/// A position in the run: counters and open calls after an event.
struct Position {
  using OpenCall = OpenCalls::Call;

  int64_t sequence = 0;
  int64_t step = 0;
  int64_t optimizer_depth = 0;
  int64_t optimizer_begin = 0;
  OpenCalls open;

  /// Moves past the next event. Call it for each event in order.
  void advance(const Event& event);
  /// The innermost module that is running in the thread; 0 for none.
  ModuleId module_of(ThreadId thread) const { return open.innermost(thread); }
};

/// A row of the table `storages`: one storage, from its birth to its free.
struct StorageRow {
  int64_t born = 0;  ///< sequence number of the birth
  StorageId id;
  int64_t born_ns = 0;
  int64_t freed = 0;  ///< sequence number of the free; 0: alive
  int64_t freed_ns = 0;
  int64_t size_bytes = 0;  ///< its largest size
  Device device;
  Category category{};  ///< its last category
  int64_t step = 0;
  /// The module that was running at the birth; for a parameter or buffer, its owner once known.
  ModuleId module;
  OpId op;
  uint32_t tensor = 0;
  uint32_t stack = 0;
};

/// Turns the events of one batch into rows. Changes take effect only at `commit`, so a batch that
/// could not be written has no effect.
class StorageRows {
 public:
  void apply(const CodedEvent& traced, const Position& position);

  const std::vector<StorageRow>& born() const { return born_; }
  /// Rows of earlier batches whose free, size or category may have changed. Their module, op,
  /// tensor and stack are 0 unless this batch has set them.
  const std::vector<StorageRow>& changed() const { return changed_; }

  void commit();
  void roll_back();

 private:
  struct LiveRow {
    int64_t born = 0;
    int64_t size_bytes = 0;
    Category category{};
  };
  struct Touched {
    bool is_alive = true;
    bool is_new = false;
    size_t index = 0;
  };
  StorageRow* find(StorageId id);

  std::unordered_map<StorageId, LiveRow> live_;
  std::vector<StorageRow> born_;
  std::vector<StorageRow> changed_;
  std::unordered_map<StorageId, Touched> touched_;
};

}  // namespace tidegauge::trace
