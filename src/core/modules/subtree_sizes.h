// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/events/ids.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// The bytes of every module of a tree together with all modules below it, in one walk. A storage
/// counts once in each module, however many of the modules below it share it.
///
///   A ── B ── C (s)      Each owner adds s to its own sum, and the lowest module above two owners
///    └── D (s)           that follow each other in the walk subtracts it: C +s, D +s, A -s. Then
///                        the sums of children are added to their parents: A has s once.
///
/// Cost: linear, as long as owners of the same storage are near each other.
class TIDEGAUGE_API SubtreeSizes {
 public:
  /// Begins a module below the one that is open. Returns false, and begins nothing, if the module
  /// was visited before: it is shared.
  bool open(ModuleId module);
  /// The open module owns the storage.
  void add(StorageId storage, int64_t size_bytes);
  void close();
  int64_t visited_count() const { return static_cast<int64_t>(nodes_.size()); }

  struct Size {
    ModuleId module;
    int64_t size_bytes;
  };
  /// Call after the last `close`. Lacks the modules of which this walk has not visited everything
  /// below, because another branch had visited a shared module before. Never lacks the first one.
  std::vector<Size> finish();

 private:
  struct Node {
    ModuleId module;
    size_t parent;
    int64_t sum_bytes = 0;
    bool lacks_shared = false;
  };
  static constexpr size_t kNone = SIZE_MAX;

  /// The lowest module above or at the open one that is also above or at `earlier`.
  size_t common(size_t earlier) const;

  std::vector<Node> nodes_;  // in the order of the walk: a module before those below it
  size_t open_ = kNone;
  std::unordered_map<ModuleId, size_t> visited_;
  std::unordered_map<StorageId, size_t> last_owner_;
};

}  // namespace tidegauge
