// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tidegauge {

/// A request of `size_bytes`; 0 bytes: the free of the previous request with the same `slot`.
struct Request {
  int64_t size_bytes = 0;
  uint64_t sequence = 0;  ///< the number of its event
  uint32_t slot = 0;
  uint16_t stream = 0;

  friend bool operator==(const Request&, const Request&) = default;
};

/// The requests of a run, in order. A hundred million of them would need gigabytes as structs, so
/// they are packed: about seven bytes for a request and four for a free.
///
///   slot * 2 + is_free | sequence, less that of the request before | size | stream
///                        (numbers of 7 bits per byte)               (not of a free)
class PackedRequests {
 public:
  void push_back(const Request& request);
  size_t size() const { return count_; }
  size_t allocated_bytes() const { return chunks_.size() * kChunkBytes; }

  /// Calls `visit(index, request)` for the first `count` requests.
  template <typename Visit>
  void visit(size_t count, Visit&& visit) const {
    Cursor cursor;
    for (size_t i = 0; i < count && i < count_; ++i) visit(i, next(cursor));
  }

 private:
  /// So many bytes are allocated at once. A growing vector would need twice the memory at times.
  static constexpr size_t kChunkBytes = size_t{1} << 20;

  struct Cursor {
    size_t chunk = 0;
    size_t offset = 0;
    uint64_t sequence = 0;
  };

  Request next(Cursor& cursor) const;

  std::vector<std::vector<uint8_t>> chunks_;  // no request is in two of them
  size_t count_ = 0;
  uint64_t last_sequence_ = 0;
};

}  // namespace tidegauge
