// SPDX-License-Identifier: BSD-3-Clause
#include "counting_new.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

size_t live = 0;
size_t peak = 0;

}  // namespace

void* operator new(size_t size) {
  void* block = std::malloc(size);
  if (!block) throw std::bad_alloc();
  live += malloc_usable_size(block);
  peak = std::max(peak, live);
  return block;
}

void operator delete(void* block) noexcept {
  live -= block ? malloc_usable_size(block) : 0;
  std::free(block);
}

void operator delete(void* block, size_t) noexcept { operator delete(block); }

namespace tidegauge::heap {

size_t live_bytes() { return live; }
size_t peak_bytes() { return peak; }
void restart_peak() { peak = live; }

}  // namespace tidegauge::heap
