// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// A cache of the memory that every started listener knows, which readers use without the lock.
/// capture/fast plugs one into the StorageRegistry; the registry is complete without it. Called
/// with the lock held. The cache is cleared when Listeners::epoch changes.
class KnowledgeCache {
 public:
  virtual void memory_known(const void* data) = 0;
  /// New memory at this address is about to be registered: no listener knows it yet.
  virtual void memory_renewed(const void* data) = 0;

 protected:
  ~KnowledgeCache() = default;
};

}  // namespace tidegauge
