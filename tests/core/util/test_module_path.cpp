// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>

#include "core/util/module_path.h"

namespace tidegauge {
namespace {

std::string path_of(int parts) {
  std::string path = "Net";
  for (int i = 1; i < parts; ++i) path += "." + std::to_string(i);
  return path;
}

TEST(ShortenPath, KeepsPathsThatPeopleWrite) {
  for (const std::string& path : {std::string(), std::string("Net"), path_of(128)}) {
    EXPECT_EQ(shorten_path(path), path);
  }
}

TEST(ShortenPath, KeepsBothEndsOfAVeryDeepPath) {
  const std::string path = shorten_path(path_of(20'000));
  EXPECT_TRUE(path.starts_with("Net.1.2.3.")) << path;
  EXPECT_NE(path.find(".63.(19873 more).19937."), std::string::npos) << path;
  EXPECT_TRUE(path.ends_with(".19998.19999")) << path;
  EXPECT_EQ(std::count(path.begin(), path.end(), '.'), 127);
}

TEST(ShortenPath, EmptyPartsAreParts) {
  const std::string path = shorten_path(std::string(20'000, '.'));
  EXPECT_EQ(std::count(path.begin(), path.end(), '.'), 127);
}

}  // namespace
}  // namespace tidegauge
