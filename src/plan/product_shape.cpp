// SPDX-License-Identifier: BSD-3-Clause
#include "plan/product_shape.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tidegauge {
namespace {

struct Tile {
  double rows, columns;
  double share;  // of the speed of the largest
};
constexpr std::array kTiles{Tile{256, 128, 1.0}, Tile{128, 256, 1.0}, Tile{128, 128, 0.95},
                            Tile{128, 64, 0.8},  Tile{64, 128, 0.8},  Tile{64, 64, 0.6}};

constexpr std::array kSplits{1.0, 2.0, 4.0, 8.0};
constexpr double kSplitShare = 0.95;  // the parts are added up
constexpr double kLeastSplitDepth = 512;
// The depth at which half of the time is that of the start.
constexpr double kStartDepth = 128;

}  // namespace

double find_product_efficiency(const OpCost& cost, int multiprocessors) {
  if (cost.rows == 0 || cost.columns == 0 || cost.depth == 0 || multiprocessors == 0) return 1;
  const auto products = static_cast<double>(cost.products);
  const auto rows = static_cast<double>(cost.rows), columns = static_cast<double>(cost.columns);
  const auto depth = static_cast<double>(cost.depth);
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = products * std::ceil(rows / tile.rows) * std::ceil(columns / tile.columns);
    for (const double split : kSplits) {
      if (split > 1 && depth / split < kLeastSplitDepth) break;
      const double waves = std::ceil(tiles * split / multiprocessors);
      const double used =
          products * rows * columns * split / (waves * multiprocessors * tile.rows * tile.columns);
      const double start = depth / split / (depth / split + kStartDepth);
      best = std::max(best, tile.share * used * start * (split > 1 ? kSplitShare : 1));
    }
  }
  return best;
}

}  // namespace tidegauge
