// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "plan/device_speed.h"
#include "plan/product_shape.h"

namespace {

using tidegauge::find_op_cost;
using tidegauge::find_product_efficiency;
using tidegauge::find_speed;
using tidegauge::OpCost;
using tidegauge::OpTensor;
using tidegauge::OpValue;
using Sizes = std::vector<int64_t>;

OpCost product(int64_t rows, int64_t depth, int64_t columns, int64_t products = 1) {
  return {.products = products, .rows = rows, .depth = depth, .columns = columns};
}
double efficiency(int64_t rows, int64_t depth, int64_t columns, int64_t products = 1) {
  return find_product_efficiency(product(rows, depth, columns, products), 100);
}

struct Measured {
  int64_t rows, depth, columns;
  double of_peak;
};
// Every eighth of the products in configs/system/a100_pcie.json of github.com/MooreThreads/SimuMax,
// by size: what an A100 reached of 312 TFLOPS.
constexpr std::array kA100{
    Measured{576, 4096, 5120, 0.596},   Measured{3072, 4096, 4096, 0.647},
    Measured{4096, 1024, 4096, 0.616},  Measured{4096, 2048, 4096, 0.682},
    Measured{4096, 3584, 8192, 0.694},  Measured{4096, 4096, 1792, 0.698},
    Measured{4096, 4096, 4096, 0.693},  Measured{4096, 4096, 14336, 0.709},
    Measured{4096, 5120, 1536, 0.788},  Measured{4096, 6144, 4096, 0.741},
    Measured{4096, 7168, 8192, 0.728},  Measured{4096, 8192, 2560, 0.791},
    Measured{4096, 8192, 10240, 0.755}, Measured{4096, 8192, 64128, 0.746},
    Measured{4096, 16128, 4096, 0.758}, Measured{4096, 28672, 8192, 0.746},
    Measured{4096, 64128, 8192, 0.754}, Measured{5120, 4096, 12288, 0.720},
    Measured{7168, 4096, 16384, 0.717}, Measured{8192, 4096, 8192, 0.714},
    Measured{24576, 4096, 1536, 0.714}, Measured{32128, 4096, 4096, 0.703},
    Measured{57344, 4096, 8192, 0.710},
};

TEST(ProductShape, MeasuredProductsAreCloserThanWithOneConstant) {
  const auto& speed = *find_speed("a100-80g");
  ASSERT_EQ(speed.multiprocessors, 108);
  double of_shape = 0, of_constant = 0;
  for (const Measured& row : kA100) {
    const double found =
        speed.matmul_share *
        find_product_efficiency(product(row.rows, row.depth, row.columns), speed.multiprocessors);
    EXPECT_LT(std::abs(found / row.of_peak - 1), 0.41) << row.rows << " " << row.columns;
    of_shape += std::abs(found / row.of_peak - 1) / kA100.size();
    of_constant += std::abs(0.72 / row.of_peak - 1) / kA100.size();
  }
  EXPECT_LT(of_shape, 0.05);
  EXPECT_LT(of_shape, 0.9 * of_constant);
}

TEST(ProductShape, TilesAndWavesThatAreNotFullCost) {
  // 100 tiles of 256 x 128: one full wave of 100 multiprocessors. One column more needs another.
  const double full = efficiency(2560, 100000, 1280);
  EXPECT_NEAR(full, 100000.0 / (100000 + 128), 1e-3);
  EXPECT_LT(efficiency(2560, 100000, 1281), full);
  EXPECT_LT(efficiency(1, 4096, 4096), 0.1);  // a vector
}

TEST(ProductShape, SmallDepthsCost) {
  EXPECT_NEAR(efficiency(2560, 128, 1280), 0.5, 1e-9);
  EXPECT_LT(efficiency(2560, 16, 1280), 0.2);
}

TEST(ProductShape, TypesWithoutTensorCoresReachTheMedian) {
  const auto& speed = *find_speed("a100-80g");
  OpCost cost = product(64, 64, 64);
  cost.kind = tidegauge::OpClass::Matmul;
  cost.flops = int64_t{1} << 40;
  cost.dtype = "float32";
  EXPECT_NEAR(speed.time_ns(cost), static_cast<double>(cost.flops) / (19.5e3 * 0.775 * 0.93), 1);
  cost.dtype = "bfloat16";
  EXPECT_NEAR(speed.time_ns(cost),
              static_cast<double>(cost.flops) / (312e3 * 0.775 * 0.6 / 108 * 64 / 192), 1e3);
}

TEST(ProductShape, LargeDepthsAreSplitIfThereAreFewTiles) {
  EXPECT_GT(efficiency(128, 65536, 128), 7 * efficiency(128, 512, 128));
}

TEST(ProductShape, ManyProductsFillTheDevice) {
  EXPECT_GT(efficiency(256, 4096, 128, 100), 0.9);
  EXPECT_LT(efficiency(256, 4096, 128), 0.3);
}

TEST(ProductShape, UnknownShapesReachEverything) {
  EXPECT_EQ(find_product_efficiency({}, 100), 1);
  EXPECT_EQ(find_product_efficiency(product(1, 1, 1), 0), 1);
}

OpValue value(const Sizes& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return {"", {OpTensor{sizes, "bfloat16", 2, elements}}};
}
Sizes shape_of(const char* op, const std::vector<Sizes>& arguments) {
  tidegauge::OpCall call{op};
  for (const Sizes& sizes : arguments) call.arguments.push_back(value(sizes));
  call.results = {value({1})};
  const OpCost cost = find_op_cost(call);
  return {cost.products, cost.rows, cost.depth, cost.columns};
}

TEST(ProductShape, IsReadFromTheArgumentsOfEachOp) {
  EXPECT_EQ(shape_of("aten::mm", {{3, 5}, {5, 7}}), (Sizes{1, 3, 5, 7}));
  EXPECT_EQ(shape_of("aten::addmm", {{7}, {3, 5}, {5, 7}}), (Sizes{1, 3, 5, 7}));
  EXPECT_EQ(shape_of("aten::bmm", {{4, 3, 5}, {4, 5, 7}}), (Sizes{4, 3, 5, 7}));
  EXPECT_EQ(shape_of("aten::linear", {{2, 3, 5}, {7, 5}}), (Sizes{1, 6, 5, 7}));
  EXPECT_EQ(shape_of("aten::mv", {{3, 5}, {5}}), (Sizes{1, 3, 5, 1}));
  EXPECT_EQ(shape_of("aten::dot", {{5}, {5}}), (Sizes{1, 1, 5, 1}));
  EXPECT_EQ(shape_of("aten::_grouped_mm", {{10, 5}, {4, 5, 7}}), (Sizes{1, 10, 5, 7}));
  EXPECT_EQ(shape_of("aten::relu", {{3, 5}}), (Sizes{0, 0, 0, 0}));
}

}  // namespace
