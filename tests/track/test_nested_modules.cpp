// SPDX-License-Identifier: BSD-3-Clause
// tests/python/trackers/mem/test_nested_modules.py compares the sizes with their definition.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/modules/module_naming.h"
#include "engine_tracking.h"
#include "listed_modules.h"
#include "track/module_labels.h"

namespace tidegauge {
namespace {

using Module = ListedFrontEnd::Module;

/// Each module is the only child of the one before.
std::vector<Module> make_chain(size_t depth) {
  std::vector<Module> chain;
  for (size_t i = 0; i < depth; ++i) {
    chain.push_back(ListedFrontEnd::make("Nest"));
    if (i > 0) ListedFrontEnd::add_child(chain[i - 1], "inner", chain[i]);
  }
  return chain;
}

/// How many modules are visited when each of them is called for the first time, in one root call.
int64_t count_visits(const std::vector<Module>& modules) {
  ModuleLabels labels(ListedFrontEnd::source());
  Tracking tracking;
  const int64_t before = ListedView::visit_count;
  labels.on_root_call();
  for (const Module& module : modules) {
    const ListedView view(module);
    labels.on_call(*tracking.engine, view, view.intern());
  }
  EXPECT_EQ(tracking.engine->failures().count(), 0) << tracking.engine->failures().first();
  return ListedView::visit_count - before;
}

TEST(NestedModules, VisitsGrowLinearlyWithTheDepth) {
  const int64_t shallow = count_visits(make_chain(5'000));
  const int64_t deep = count_visits(make_chain(10'000));
  EXPECT_LT(deep, 2 * shallow);           // a fixed number, and some for each module
  EXPECT_LT(deep - shallow, 5'000 * 40);  // 32 for each module, and the walk
}

TEST(NestedModules, EachModuleOfAWideTreeIsVisitedOncePerLevel) {
  constexpr int64_t kWidth = 10'000;
  std::vector<Module> modules{ListedFrontEnd::make("Wide")};
  for (int64_t i = 0; i < kWidth; ++i) {
    modules.push_back(ListedFrontEnd::make("Leaf"));
    ListedFrontEnd::add_child(modules[0], std::to_string(i), modules.back());
  }
  // The walk visits all, and each leaf is compared at its own call.
  EXPECT_EQ(count_visits(modules), 1 + kWidth + kWidth);
}

TEST(NestedModules, CallsOfLaterStepsVisitNothing) {
  const std::vector<Module> chain = make_chain(100);
  ModuleLabels labels(ListedFrontEnd::source());
  Tracking tracking;
  int64_t before = 0;
  for (int step = 0; step < 2; ++step) {
    before = ListedView::visit_count;
    labels.on_root_call();
    for (const Module& module : chain) {
      const ListedView view(module);
      labels.on_call(*tracking.engine, view, view.intern());
    }
  }
  EXPECT_EQ(ListedView::visit_count, before);
}

TEST(NestedModules, NamesVisitEachModuleOnceHoweverManyPathsLeadToIt) {
  // Two modules on each level, both parents of both modules of the next one: 2^30 paths.
  std::vector<Module> modules{ListedFrontEnd::make("Net")};
  std::vector<Module> above = modules;
  for (int level = 0; level < 30; ++level) {
    const std::vector<Module> next{ListedFrontEnd::make("A"), ListedFrontEnd::make("B")};
    for (const Module& parent : above) {
      ListedFrontEnd::add_child(parent, "a", next[0]);
      ListedFrontEnd::add_child(parent, "b", next[1]);
    }
    modules.insert(modules.end(), next.begin(), next.end());
    above = next;
  }
  const auto activity = ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; });
  const int64_t before = ListedView::visit_count;
  const ListedView net(modules[0]);
  name_root(*activity, net, net.intern());
  EXPECT_EQ(ListedView::visit_count - before, 61);
  for (const Module& module : modules) EXPECT_FALSE(activity->name(module->id).empty());
}

}  // namespace
}  // namespace tidegauge
