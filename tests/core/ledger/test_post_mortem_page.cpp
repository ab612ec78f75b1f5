// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "core/ledger/post_mortem_page.h"

namespace tidegauge {
namespace {

PostMortem example() {
  PostMortem example{.step = 2,
                     .failed = {int64_t{1} << 42, "cpu"},
                     .op = "aten::mm",
                     .module = "Net.fc",
                     .message = "no memory",
                     .live = {}};
  example.live = {
      {"cpu", Category::Activation, "Net.fc", "aten::mm", "float32", "[2, 1024]", "", 3, 24576},
      {"cpu", Category::Parameter, "", "", "float32", "[1024]", "", 2, 8192},
      {"cpu", Category::Activation, "Net", "aten::mm", "float32", "[2, 1024]", "", 1, 8192},
      {"meta", Category::Other, "", "", "float32", "[1]", "", 1, 2048},
  };
  return example;
}

TEST(RenderPostMortem, SumsByCategoryModuleAndTensorOfTheFailedDevice) {
  EXPECT_EQ(render_post_mortem(example()),
            R"(tidegauge: out of memory allocating 4.00 TiB on cpu
  requested by aten::mm in Net.fc, in step 2
  live memory: 40.0 KiB, and 2.00 KiB on other devices

  by category
    32.0 KiB   80 %      4 x  Activation
    8.00 KiB   20 %      2 x  Parameter

  by allocating module
    24.0 KiB   60 %      3 x  Net.fc
    8.00 KiB   20 %      2 x  (no module)
    8.00 KiB   20 %           Net

  by tensor
    32.0 KiB   80 %      4 x  float32 [2, 1024] aten::mm
    8.00 KiB   20 %      2 x  float32 [1024]

  largest that could be freed
    24.0 KiB   60 %      3 x  Activation: Net.fc
    8.00 KiB   20 %           Activation: Net
  Activation: use a smaller batch, or checkpoint the modules with the most bytes
)");
  EXPECT_EQ(live_bytes(example()), 40960 + 2048);
}

TEST(RenderPostMortem, FitsInEightyColumnsAndCountsOmittedRows) {
  PostMortem many;
  for (int i = 0; i < 30; ++i) {
    many.live.push_back({"cpu", Category::Gradient, std::string(100, 'm') + std::to_string(i),
                         std::string("aten::").append(90, 'o'), "float32",
                         std::string("[").append(std::to_string(i)).append("]"), "", 1, 1 << 20});
  }
  std::istringstream lines(render_post_mortem(many));
  int more = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80) << line;
    if (line.ends_with("22.0 MiB   73 %     22 x  (22 more)")) ++more;
  }
  EXPECT_EQ(more, 3);  // the tables of modules, of tensors, and of memory that could be freed
}

}  // namespace
}  // namespace tidegauge
