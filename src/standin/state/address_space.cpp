// SPDX-License-Identifier: BSD-3-Clause
#include "standin/state/address_space.h"

#include <sys/mman.h>

#include <iterator>

namespace tidegauge::standin {
namespace {

constexpr size_t kHostPage = 4096;

uintptr_t round_up(uintptr_t value, size_t alignment) {
  return (value + alignment - 1) & ~(uintptr_t{alignment} - 1);
}

}  // namespace

void AddressSpace::map_all() {
  is_mapped_ = true;
  // Limits such as `ulimit -v` may leave less.
  for (size_t size_bytes = size_t{64} << 40; size_bytes >= size_t{64} << 30; size_bytes /= 2) {
    void* begin = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) continue;
    madvise(begin, size_bytes, MADV_NOHUGEPAGE);  // one byte must not cost 2 MiB
    madvise(begin, size_bytes, MADV_DONTDUMP);
    gaps_[reinterpret_cast<uintptr_t>(begin)] = size_bytes;
    return;
  }
}

void* AddressSpace::take(size_t size_bytes, size_t alignment) {
  if (!is_mapped_) map_all();
  const size_t size = round_up(size_bytes, kHostPage);
  if (size < size_bytes) return nullptr;  // overflow
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    const uintptr_t low = gap->first;
    const uintptr_t end = low + gap->second;
    const uintptr_t begin = round_up(low, alignment);
    if (begin > end || end - begin < size) continue;
    gaps_.erase(gap);
    if (begin > low) gaps_[low] = begin - low;
    if (begin + size < end) gaps_[begin + size] = end - begin - size;
    taken_[begin] = size;
    return reinterpret_cast<void*>(begin);
  }
  return nullptr;
}

void AddressSpace::give_back(void* memory) {
  const auto found = taken_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == taken_.end()) return;
  const uintptr_t begin = found->first;
  uintptr_t end = begin + found->second;
  madvise(memory, found->second, MADV_DONTNEED);
  taken_.erase(found);
  auto next = gaps_.lower_bound(begin);
  if (next != gaps_.end() && next->first == end) {
    end += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second = end - before->first;
      return;
    }
  }
  gaps_[begin] = end - begin;
}

}  // namespace tidegauge::standin
