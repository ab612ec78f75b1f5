// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/sort_memory.h"

#include "simulate/ceil_div.h"

namespace tidegauge::simulation {
namespace {

// Several buffers in one request: each is aligned, and so is the first one within the request.
constexpr int64_t kAlignment = 256;
constexpr int64_t kSlack = kAlignment - 1;

// How many elements a block of threads works on, found by comparing requests of many sizes.
constexpr int64_t kSortTileBytes = 4608 * 8;
constexpr int64_t kMostInOneBlock = 2048;
constexpr int64_t kUniqueTile = 2432;
constexpr int64_t kScanTile = 896;
constexpr int64_t kPaddingTiles = 32;

int64_t align(int64_t size_bytes) { return ceil_div(size_bytes, kAlignment) * kAlignment; }

}  // namespace

int64_t sort_pairs_bytes(int64_t count, int64_t item_bytes, int64_t bits) {
  if (count <= kMostInOneBlock) return 1;
  constexpr int64_t kDigits = 256;
  const int64_t passes = ceil_div(bits, 8);
  const int64_t tiles = ceil_div(count * item_bytes, kSortTileBytes);
  const int64_t copies = passes > 1 ? 2 * align(count * item_bytes) : 0;
  return kSlack + align(passes * kDigits * 8) + align(tiles * kDigits * 4) + copies + kAlignment;
}

int64_t unique_bytes(int64_t count) {
  return kSlack + 2 * kAlignment + align((ceil_div(count, kUniqueTile) + kPaddingTiles) * 8);
}

int64_t scan_bytes(int64_t count) {
  return kSlack + kAlignment + align((ceil_div(count, kScanTile) + kPaddingTiles) * 16);
}

}  // namespace tidegauge::simulation
