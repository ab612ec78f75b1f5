// SPDX-License-Identifier: BSD-3-Clause
#include <limits>

#include "core/util/utf8.h"
#include "export/value_writer.h"

namespace tidegauge {
namespace {

constexpr char kProto = '\x80', kStop = '.', kMark = '(', kMemoize = '\x94';
constexpr char kEmptyMap = '}', kSetItems = 'u', kEmptyList = ']', kAppends = 'e';
constexpr char kInt1 = 'K', kInt2 = 'M', kInt4 = 'J', kLong = '\x8a', kPair = '\x86';
constexpr char kTrue = '\x88', kFalse = '\x89', kShortText = '\x8c', kText = 'X';
constexpr char kRecall = 'h', kRecallLong = 'j';

// A reader keeps this many items on its stack; torch's viewer passes them as arguments of one call.
constexpr size_t kItemsAtOnce = 1000;

}  // namespace

PickleWriter::PickleWriter(Sink sink) : ValueWriter(std::move(sink)) {
  put(kProto);
  put(4);
}

void PickleWriter::put_bytes(uint64_t value, int count) {
  for (int i = 0; i < count; ++i) put(static_cast<char>(value >> (8 * i) & 0xFF));
}

void PickleWriter::recall(uint32_t place) {
  put(place < 256 ? kRecall : kRecallLong);
  put_bytes(place, place < 256 ? 1 : 4);
}

uint32_t PickleWriter::memoize() {
  put(kMemoize);
  return memo_size_++;
}

/// Appends the pending items to the open list once there are enough of them.
void PickleWriter::value_written() {
  if (open_.empty() || !open_.back().is_list || ++open_.back().count < kItemsAtOnce) return;
  open_.back().count = 0;
  put(kAppends);
  put(kMark);
  flush_if_full();
}

void PickleWriter::begin_map() {
  put(kEmptyMap);
  put(kMark);
  open_.push_back({.is_list = false});
}

void PickleWriter::end_map() {
  open_.pop_back();
  put(kSetItems);
  value_written();
}

void PickleWriter::begin_list() {
  put(kEmptyList);
  put(kMark);
  open_.push_back({.is_list = true});
}

void PickleWriter::end_list() {
  open_.pop_back();
  put(kAppends);
  value_written();
}

void PickleWriter::key(std::string_view name) {
  const auto [known, is_new] = texts_.try_emplace(std::string(name), memo_size_);
  if (!is_new) return recall(known->second);
  const std::string valid = to_valid_utf8(name);
  put(valid.size() < 256 ? kShortText : kText);
  put_bytes(valid.size(), valid.size() < 256 ? 1 : 4);
  buffer_ += valid;
  memoize();
}

void PickleWriter::text(std::string_view value) {
  key(value);
  value_written();
}

void PickleWriter::plain_number(int64_t value) {
  if (value >= 0 && value < 256) {
    put(kInt1);
    put_bytes(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value < 65536) {
    put(kInt2);
    put_bytes(static_cast<uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    put(kInt4);
    put_bytes(static_cast<uint64_t>(value), 4);
  } else {
    put(kLong);
    put(8);
    put_bytes(static_cast<uint64_t>(value), 8);
  }
}

void PickleWriter::number(int64_t value) {
  plain_number(value);
  value_written();
}

void PickleWriter::boolean(bool value) {
  put(value ? kTrue : kFalse);
  value_written();
}

void PickleWriter::pair(int64_t first, int64_t second) {
  plain_number(first);
  plain_number(second);
  put(kPair);
  value_written();
}

void PickleWriter::shared(uint64_t id, const std::function<void()>& write) {
  const auto known = shared_.find(id);
  if (known != shared_.end()) {
    recall(known->second);
    return value_written();
  }
  // The value must be memoized before it is appended to a surrounding list.
  open_.push_back({.is_list = false});
  write();
  open_.pop_back();
  shared_.emplace(id, memoize());
  value_written();
}

void PickleWriter::finish() {
  put(kStop);
  ValueWriter::finish();
}

}  // namespace tidegauge
