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

/// What is known about a range: its bytes are in memory, or they repeat an element.
struct Content {
  uintptr_t end = 0;
  bool is_assumed = false;
  Element element{};     // size 0: in memory
  uintptr_t origin = 0;  // where one of its copies begins
};

/// Disjoint ranges of known bytes, by their begin.
class Known {
 public:
  std::mutex mutex;

  void add(uintptr_t begin, const Content& content) {
    remove(begin, content.end);
    ranges_[begin] = content;
  }
  void remove(uintptr_t begin, uintptr_t end) {
    auto at = find(begin);
    while (at != ranges_.end() && at->first < end) {
      const auto [old_begin, old] = *at;
      at = ranges_.erase(at);
      if (old_begin < begin) {
        Content left = old;
        left.end = begin;
        ranges_[old_begin] = left;
      }
      if (old.end > end) ranges_[end] = old;
    }
  }
  /// Calls `visit(begin, content)` for each known part of the range.
  template <typename Visit>
  void each(uintptr_t begin, uintptr_t end, Visit visit) {
    for (auto at = find(begin); at != ranges_.end() && at->first < end; ++at) {
      Content part = at->second;
      part.end = std::min(end, part.end);
      visit(std::max(begin, at->first), part);
    }
  }
  bool is_empty() const { return ranges_.empty(); }

 private:
  std::map<uintptr_t, Content>::iterator find(uintptr_t begin) {
    auto at = ranges_.upper_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
    return at;
  }
  std::map<uintptr_t, Content> ranges_;
};

Known& known() {
  static auto* ranges = new Known;
  return *ranges;
}

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

/// `first`: the byte of the element with which the copies begin.
void repeat(void* to, size_t size_bytes, const Element& element, size_t first) {
  auto* out = static_cast<unsigned char*>(to);
  const size_t block = std::min(size_bytes, element.size_bytes * 256);
  for (size_t at = 0; at < block; ++at) {
    out[at] = element.bytes[(first + at) % element.size_bytes];
  }
  for (size_t at = block; at < size_bytes; at += block) {
    std::memcpy(out + at, out, std::min(block, size_bytes - at));
  }
}

void fill_with_unknown(void* to, size_t size_bytes) {
  if (size_bytes > kMaxFill) return;
  if (unknown.size_bytes == 0) {
    std::memset(to, 0, size_bytes);
  } else {
    repeat(to, size_bytes, unknown, 0);
  }
}

Element make_element(const void* bytes, size_t size_bytes) {
  Element element;
  element.size_bytes = std::min(size_bytes, kMaxElement);
  if (element.size_bytes > 0) std::memcpy(element.bytes, bytes, element.size_bytes);
  return element;
}

void forget_locked(const void* begin, size_t size_bytes) {
  known().remove(number(begin), number(begin) + size_bytes);
}

}  // namespace

void copy_to_device(void* to, const void* from, size_t size_bytes) {
  if (size_bytes > settings().copy_limit_bytes) return forget(to, size_bytes);
  tidegauge_standin_write(to, from, size_bytes, 0);
}

void copy_to_host(void* to, const void* from, size_t size_bytes) {
  fill_with_unknown(to, size_bytes);
  const std::lock_guard lock(known().mutex);
  known().each(number(from), number(from) + size_bytes, [&](uintptr_t begin, const Content& part) {
    auto* target = static_cast<char*>(to) + (begin - number(from));
    if (part.element.size_bytes == 0) {
      std::memcpy(target, reinterpret_cast<void*>(begin), part.end - begin);
    } else if (part.end - begin <= kMaxFill) {
      repeat(target, part.end - begin, part.element, begin - part.origin);
    }
  });
}

void copy_on_device(void* to, const void* from, size_t size_bytes) {
  if (to == from) return;
  const std::lock_guard lock(known().mutex);
  if (known().is_empty()) return;
  std::map<uintptr_t, Content> parts;
  known().each(number(from), number(from) + size_bytes,
               [&](uintptr_t begin, const Content& part) { parts[begin] = part; });
  forget_locked(to, size_bytes);
  for (auto& [begin, part] : parts) {
    const size_t part_bytes = part.end - begin;
    auto* target = static_cast<char*>(to) + (begin - number(from));
    if (part.element.size_bytes == 0) {
      if (size_bytes > settings().copy_limit_bytes) continue;
      std::memmove(target, reinterpret_cast<void*>(begin), part_bytes);
    }
    part.end = number(target) + part_bytes;
    part.origin += number(target) - begin;
    known().add(number(target), part);
  }
}

void fill(void* to, int byte, size_t size_bytes) {
  const auto element = static_cast<unsigned char>(byte);
  tidegauge_standin_write_equal(to, size_bytes, &element, 1, 0);
}

void forget(const void* begin, size_t size_bytes) {
  const std::lock_guard lock(known().mutex);
  forget_locked(begin, size_bytes);
}

}  // namespace tidegauge::standin::values

using namespace tidegauge::standin;

void tidegauge_standin_set_unknown(const void* element, size_t size_bytes) {
  values::unknown = values::make_element(element, size_bytes);
}

void tidegauge_standin_forget(uint64_t address, size_t size_bytes) {
  values::forget(reinterpret_cast<const void*>(address), size_bytes);
}

void tidegauge_standin_write(void* to, const void* from, size_t size_bytes, int is_assumed) {
  if (size_bytes == 0) return;
  const std::lock_guard lock(values::known().mutex);
  std::memcpy(to, from, size_bytes);
  const uintptr_t begin = values::number(to);
  values::known().add(begin, {begin + size_bytes, is_assumed != 0, {}, begin});
}

void tidegauge_standin_write_equal(void* to, size_t size_bytes, const void* element,
                                   size_t element_bytes, int is_assumed) {
  if (size_bytes == 0 || element_bytes == 0) return;
  const std::lock_guard lock(values::known().mutex);
  const uintptr_t begin = values::number(to);
  values::known().add(begin, {begin + size_bytes, is_assumed != 0,
                              values::make_element(element, element_bytes), begin});
}

void tidegauge_standin_read(void* to, const void* from, size_t size_bytes) {
  values::copy_to_host(to, from, size_bytes);
}

int tidegauge_standin_look(const void* from, size_t size_bytes, void* element,
                           size_t* element_bytes, int* is_assumed) {
  const uintptr_t end = values::number(from) + size_bytes;
  size_t known_bytes = 0;
  bool is_equal = true;
  const std::lock_guard lock(values::known().mutex);
  *is_assumed = 0;
  *element_bytes = 0;
  values::known().each(
      values::number(from), end, [&](uintptr_t begin, const values::Content& part) {
        known_bytes += part.end - begin;
        if (part.is_assumed) *is_assumed = 1;
        values::Element rotated = part.element;
        is_equal = is_equal && rotated.size_bytes > 0;
        if (!is_equal) return;
        values::repeat(rotated.bytes, rotated.size_bytes, part.element, begin - part.origin);
        if (*element_bytes == 0) {
          *element_bytes = rotated.size_bytes;
          std::memcpy(element, rotated.bytes, rotated.size_bytes);
        }
        is_equal = *element_bytes == rotated.size_bytes &&
                   std::memcmp(element, rotated.bytes, rotated.size_bytes) == 0;
      });
  if (known_bytes == 0) return 0;
  if (known_bytes < size_bytes) return 3;
  return is_equal ? 1 : 2;
}
