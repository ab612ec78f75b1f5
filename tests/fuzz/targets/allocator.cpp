// SPDX-License-Identifier: BSD-3-Clause
// Any life of an allocator: equal to the naive allocator, which walks over all blocks.
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/naive_allocator.h"
#include "input.h"

namespace tidegauge::fuzz {
namespace {

constexpr size_t kMostActions = 300;  // the naive allocator is slow

void live(Input& input) {
  AllocatorOptions options;
  if (input.one_in(2)) options.config.max_split_bytes = (20 + input.below(80)) * kMiB;
  options.tie = input.one_in(2) ? TieRule::Address : TieRule::SegmentCounter;
  if (input.one_in(2)) options.total_bytes = (50 + input.below(400)) * kMiB;
  CachingAllocator allocator(options);
  NaiveAllocator naive(options.config, options.tie, options.total_bytes);
  std::vector<Block*> blocks;
  for (size_t i = 0; i < kMostActions && !input.is_empty(); ++i) {
    const uint8_t action = input.byte();
    if (action % 64 == 1) {
      allocator.empty_cache();
      naive.empty_cache();
    } else if (action % 2 == 1 && !blocks.empty()) {
      const auto index = static_cast<size_t>(input.below(std::ssize(blocks)));
      naive.free(blocks[index]->address);
      allocator.free(blocks[index]);
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(index));
    } else {
      const int64_t size_bytes = 1 + input.below(int64_t{1} << (9 + action / 2 % 18));
      const int64_t stream = action % 4 / 2;
      Block* block = allocator.malloc(size_bytes, stream);
      if ((block != nullptr ? block->address : kNoAddress) != naive.malloc(size_bytes, stream)) {
        fail("another address");
      }
      if (block != nullptr) blocks.push_back(block);
    }
  }
  if (allocator.layout() != naive.layout()) fail("another layout");
}

}  // namespace
}  // namespace tidegauge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tidegauge::fuzz::Input input(data, size);
  tidegauge::fuzz::live(input);
  return 0;
}
