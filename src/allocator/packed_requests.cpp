// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/packed_requests.h"

namespace tidegauge {
namespace {

constexpr size_t kMostBytes = 4 * 10;  // four numbers of up to 64 bits

void pack(std::vector<uint8_t>& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<uint8_t>(number | 0x80));
  bytes.push_back(static_cast<uint8_t>(number));
}

uint64_t unpack(const std::vector<uint8_t>& bytes, size_t& offset) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = bytes[offset++];
    number |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return number;
  }
}

}  // namespace

void PackedRequests::push_back(const Request& request) {
  if (chunks_.empty() || chunks_.back().size() + kMostBytes > kChunkBytes) {
    chunks_.emplace_back().reserve(kChunkBytes);
  }
  std::vector<uint8_t>& bytes = chunks_.back();
  const bool is_free = request.size_bytes == 0;
  pack(bytes, uint64_t{request.slot} * 2 + (is_free ? 1 : 0));
  pack(bytes, request.sequence - last_sequence_);
  last_sequence_ = request.sequence;
  if (!is_free) {
    pack(bytes, static_cast<uint64_t>(request.size_bytes));
    pack(bytes, request.stream);
  }
  ++count_;
}

Request PackedRequests::next(Cursor& cursor) const {
  if (cursor.offset == chunks_[cursor.chunk].size()) {
    ++cursor.chunk;
    cursor.offset = 0;
  }
  const std::vector<uint8_t>& bytes = chunks_[cursor.chunk];
  const uint64_t slot = unpack(bytes, cursor.offset);
  cursor.sequence += unpack(bytes, cursor.offset);
  Request request{.sequence = cursor.sequence, .slot = static_cast<uint32_t>(slot >> 1)};
  if ((slot & 1) == 0) {
    request.size_bytes = static_cast<int64_t>(unpack(bytes, cursor.offset));
    request.stream = static_cast<uint16_t>(unpack(bytes, cursor.offset));
  }
  return request;
}

}  // namespace tidegauge
