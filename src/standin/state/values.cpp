// SPDX-License-Identifier: BSD-3-Clause
#include "standin/state/values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "standin/state/settings.h"

namespace tidegauge::standin::values {
namespace {

/// Host memory above this size is not filled: it is fresh memory, which reads as 0, and a
/// checkpoint of a large model must not take the memory of this machine.
constexpr size_t kMaxFill = size_t{64} << 20;
constexpr size_t kMaxElement = 16;

struct Element {
  unsigned char bytes[kMaxElement] = {};
  size_t size_bytes = 0;
};
thread_local Element unknown;

/// Disjoint ranges of known bytes: begin -> end.
class Known {
 public:
  std::mutex mutex;

  void add(uintptr_t begin, uintptr_t end) {
    remove(begin, end);
    ranges_[begin] = end;
  }
  void remove(uintptr_t begin, uintptr_t end) {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
    while (at != ranges_.end() && at->first < end) {
      const auto [old_begin, old_end] = *at;
      at = ranges_.erase(at);
      if (old_begin < begin) ranges_[old_begin] = begin;
      if (old_end > end) ranges_[end] = old_end;
    }
  }
  /// Calls `visit(begin, end)` for each known part of the range.
  template <typename Visit>
  void each(uintptr_t begin, uintptr_t end, Visit visit) const {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
    for (; at != ranges_.end() && at->first < end; ++at) {
      visit(std::max(begin, at->first), std::min(end, at->second));
    }
  }
  bool is_empty() const { return ranges_.empty(); }

 private:
  std::map<uintptr_t, uintptr_t> ranges_;
};

Known& known() {
  static auto* ranges = new Known;
  return *ranges;
}

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void fill_with_unknown(void* to, size_t size_bytes) {
  if (size_bytes > kMaxFill) return;
  if (unknown.size_bytes == 0) {
    std::memset(to, 0, size_bytes);
    return;
  }
  auto* out = static_cast<unsigned char*>(to);
  for (size_t at = 0; at < size_bytes; at += unknown.size_bytes) {
    std::memcpy(out + at, unknown.bytes, std::min(unknown.size_bytes, size_bytes - at));
  }
}

void forget_locked(const void* begin, size_t size_bytes) {
  known().remove(number(begin), number(begin) + size_bytes);
}

}  // namespace

void copy_to_device(void* to, const void* from, size_t size_bytes) {
  const std::lock_guard lock(known().mutex);
  if (size_bytes > settings().copy_limit_bytes) return forget_locked(to, size_bytes);
  std::memcpy(to, from, size_bytes);
  known().add(number(to), number(to) + size_bytes);
}

void copy_to_host(void* to, const void* from, size_t size_bytes) {
  fill_with_unknown(to, size_bytes);
  const std::lock_guard lock(known().mutex);
  known().each(number(from), number(from) + size_bytes, [&](uintptr_t begin, uintptr_t end) {
    std::memcpy(static_cast<char*>(to) + (begin - number(from)), reinterpret_cast<void*>(begin),
                end - begin);
  });
}

void copy_on_device(void* to, const void* from, size_t size_bytes) {
  if (to == from) return;
  const std::lock_guard lock(known().mutex);
  if (known().is_empty()) return;
  if (size_bytes > settings().copy_limit_bytes) return forget_locked(to, size_bytes);
  std::map<uintptr_t, uintptr_t> parts;
  known().each(number(from), number(from) + size_bytes,
               [&](uintptr_t begin, uintptr_t end) { parts[begin] = end; });
  forget_locked(to, size_bytes);
  for (const auto& [begin, end] : parts) {
    auto* target = static_cast<char*>(to) + (begin - number(from));
    std::memmove(target, reinterpret_cast<void*>(begin), end - begin);
    known().add(number(target), number(target) + (end - begin));
  }
}

void fill(void* to, int byte, size_t size_bytes) {
  const std::lock_guard lock(known().mutex);
  if (size_bytes > settings().copy_limit_bytes) return forget_locked(to, size_bytes);
  std::memset(to, byte, size_bytes);
  known().add(number(to), number(to) + size_bytes);
}

void forget(const void* begin, size_t size_bytes) {
  const std::lock_guard lock(known().mutex);
  forget_locked(begin, size_bytes);
}

}  // namespace tidegauge::standin::values

using namespace tidegauge::standin;

void tidegauge_standin_set_unknown(const void* element, size_t size_bytes) {
  values::unknown.size_bytes = std::min(size_bytes, values::kMaxElement);
  if (size_bytes > 0) std::memcpy(values::unknown.bytes, element, values::unknown.size_bytes);
}

void tidegauge_standin_forget(uint64_t address, size_t size_bytes) {
  values::forget(reinterpret_cast<const void*>(address), size_bytes);
}

void tidegauge_standin_write(void* to, const void* from, size_t size_bytes) {
  values::copy_to_device(to, from, size_bytes);
}
