// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "core/modules/subtree_sizes.h"

namespace tidegauge {
namespace {

/// Modules by number; each owns storages and has children. A child may have several parents.
struct Graph {
  struct Module {
    std::vector<uint32_t> children;
    std::vector<uint64_t> storages;
  };
  std::map<uint32_t, Module> modules;

  static int64_t size_of(uint64_t storage) { return static_cast<int64_t>(storage) * 8; }

  void walk(uint32_t module, SubtreeSizes& sizes) const {
    if (!sizes.open(ModuleId(module))) return;
    for (const uint64_t storage : modules.at(module).storages) {
      sizes.add(StorageId(storage), size_of(storage));
    }
    for (const uint32_t child : modules.at(module).children) walk(child, sizes);
    sizes.close();
  }

  std::map<uint32_t, int64_t> sizes(uint32_t root) const {
    SubtreeSizes all;
    walk(root, all);
    std::map<uint32_t, int64_t> result;
    for (const auto& [module, size_bytes] : all.finish()) result[module.value] = size_bytes;
    return result;
  }

  /// The definition: the storages of all modules below, each once.
  int64_t brute_force(uint32_t root) const {
    std::set<uint32_t> seen;
    std::set<uint64_t> storages;
    std::vector<uint32_t> waiting{root};
    while (!waiting.empty()) {
      const uint32_t module = waiting.back();
      waiting.pop_back();
      if (!seen.insert(module).second) continue;
      const Module& each = modules.at(module);
      storages.insert(each.storages.begin(), each.storages.end());
      waiting.insert(waiting.end(), each.children.begin(), each.children.end());
    }
    int64_t sum_bytes = 0;
    for (const uint64_t storage : storages) sum_bytes += size_of(storage);
    return sum_bytes;
  }
};

TEST(SubtreeSizes, StorageOfTwoBranchesCountsOnceAboveThem) {
  const Graph graph{{{1, {{2, 3}, {}}}, {2, {{4}, {1}}}, {3, {{}, {5, 1}}}, {4, {{}, {5, 5}}}}};
  EXPECT_EQ(graph.sizes(1), (std::map<uint32_t, int64_t>{{1, 48}, {2, 48}, {3, 48}, {4, 40}}));
}

TEST(SubtreeSizes, ModuleWhoseSharedChildWasVisitedElsewhereIsLeftOut) {
  const Graph graph{{{1, {{2, 3}, {}}}, {2, {{4}, {}}}, {3, {{4}, {}}}, {4, {{}, {5}}}}};
  EXPECT_EQ(graph.sizes(1), (std::map<uint32_t, int64_t>{{1, 40}, {2, 40}, {4, 40}}));
  EXPECT_EQ(graph.sizes(3).at(3), 40);
}

TEST(SubtreeSizes, AgreeWithTheDefinitionOnRandomGraphs) {
  size_t left_out = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const uint32_t count = 1 + random() % 30;
    Graph graph;
    for (uint32_t module = 1; module <= count; ++module) {
      Graph::Module& each = graph.modules[module];
      for (uint32_t i = random() % 4; i-- > 0;) each.storages.push_back(1 + random() % 12);
      // Sometimes a child has two parents, or is a module above.
      if (module > 1) graph.modules[1 + random() % (module - 1)].children.push_back(module);
      if (random() % 8 == 0) each.children.push_back(1 + random() % module);
    }
    const auto sizes = graph.sizes(1);
    EXPECT_TRUE(sizes.contains(1));
    for (const auto& [module, size_bytes] : sizes) {
      ASSERT_EQ(size_bytes, graph.brute_force(module)) << "seed " << seed << " module " << module;
    }
    left_out += graph.modules.size() - sizes.size();
  }
  EXPECT_GT(left_out, 0u);
}

}  // namespace
}  // namespace tidegauge
