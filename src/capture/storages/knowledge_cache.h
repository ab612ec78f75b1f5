// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// A cache of memory that every started listener knows, for callers that do not want to take the
/// lock. capture/fast plugs one into the StorageRegistry; without it the registry is complete.
/// Called with the lock held. Cleared when Listeners::epoch changes.
class KnowledgeCache {
 public:
  virtual void memory_known(const void* data) = 0;
  /// The memory is about to be registered anew: nothing is known of it.
  virtual void memory_renewed(const void* data) = 0;

 protected:
  ~KnowledgeCache() = default;
};

}  // namespace tidegauge
