// SPDX-License-Identifier: BSD-3-Clause
// Any text as PYTORCH_CUDA_ALLOC_CONF: parsed or rejected, and no setting breaks the allocator.
#include <vector>

#include "allocator/caching_allocator.h"
#include "input.h"

namespace tidegauge::fuzz {
namespace {

void live(const AllocConfig& config) {
  CachingAllocator allocator({.config = config, .total_bytes = int64_t{1} << 36});
  std::vector<Block*> blocks;
  for (const int64_t size_bytes : {int64_t{1}, int64_t{700'000}, 3 * kMiB, 11 * kMiB, 300 * kMiB}) {
    for (int64_t stream = 0; stream < 2; ++stream) {
      if (Block* block = allocator.malloc(size_bytes, stream)) blocks.push_back(block);
    }
  }
  for (size_t i = 0; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  allocator.malloc(5 * kMiB);
  check_layout(allocator.layout());
  for (size_t i = 1; i < blocks.size(); i += 2) allocator.free(blocks[i]);
  allocator.empty_cache();
  check_layout(allocator.layout());
}

}  // namespace
}  // namespace tidegauge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidegauge;
  fuzz::expect_clean_errors([&] {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const AllocConfig config = parse_alloc_config(text);
    if (parse_alloc_config(text, config) != config) fuzz::fail("parsed differently again");
    fuzz::live(config);
  });
  return 0;
}
