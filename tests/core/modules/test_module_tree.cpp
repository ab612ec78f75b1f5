// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "core/modules/module_tree.h"
#include "core/util/module_path.h"

namespace tidegauge {
namespace {

constexpr ModuleId kNet{1};
constexpr ModuleId kBlock{2};
constexpr ModuleId kLinear{3};
constexpr ModuleId kOther{4};

ModuleTree net_block_linear() {
  ModuleTree tree;
  tree.name_root(kNet, "Net");
  tree.name_child(kBlock, kNet, "block");
  tree.name_child(kLinear, kBlock, "0");
  return tree;
}

TEST(ModuleTree, NamesFollowThePath) {
  const ModuleTree tree = net_block_linear();
  EXPECT_EQ(tree.name(kNet), "Net");
  EXPECT_EQ(tree.name(kBlock), "Net.block");
  EXPECT_EQ(tree.name(kLinear), "Net.block.0");
  EXPECT_EQ(tree.name(kOther), "");
  EXPECT_FALSE(tree.knows(kOther));
}

TEST(ModuleTree, SecondLiveRootOfAClassGetsANumber) {
  ModuleTree tree;
  tree.name_root(ModuleId{1}, "Net");
  tree.name_root(ModuleId{2}, "Net");
  tree.name_root(ModuleId{3}, "Net");
  EXPECT_EQ(tree.name(ModuleId{1}), "Net");
  EXPECT_EQ(tree.name(ModuleId{2}), "Net#2");
  EXPECT_EQ(tree.name(ModuleId{3}), "Net#3");
}

TEST(ModuleTree, NameOfADestroyedRootStaysReadableAndCanBeReused) {
  ModuleTree tree;
  tree.name_root(ModuleId{1}, "Net");
  tree.mark_dead(ModuleId{1});
  tree.name_root(ModuleId{2}, "Net");
  EXPECT_EQ(tree.name(ModuleId{1}), "Net");
  EXPECT_EQ(tree.name(ModuleId{2}), "Net");
}

TEST(ModuleTree, RootThatBecomesAChildIsRenamedWithItsSubtree) {
  ModuleTree tree;
  tree.name_root(kBlock, "Block");
  tree.name_child(kLinear, kBlock, "0");
  tree.name_root(kNet, "Net");
  tree.name_child(kBlock, kNet, "block");
  EXPECT_EQ(tree.name(kBlock), "Net.block");
  EXPECT_EQ(tree.name(kLinear), "Net.block.0");
  tree.name_root(kOther, "Block");
  EXPECT_EQ(tree.name(kOther), "Block");  // the short name is free again
}

TEST(ModuleTree, LastPathWinsForASharedModule) {
  ModuleTree tree = net_block_linear();
  tree.name_child(kOther, kNet, "other");
  tree.name_child(kLinear, kOther, "shared");
  EXPECT_EQ(tree.name(kLinear), "Net.other.shared");
}

TEST(ModuleTree, RootKeepsItsNameWhenNamedAgain) {
  ModuleTree tree = net_block_linear();
  tree.name_root(kLinear, "Linear");
  EXPECT_EQ(tree.name(kLinear), "Net.block.0");
}

TEST(ModuleTree, UserNameReplacesTheClassName) {
  ModuleTree tree = net_block_linear();
  tree.rename_root(kNet, "generator");
  EXPECT_EQ(tree.name(kLinear), "generator.block.0");
  tree.rename_root(kBlock, "part");  // not a root: keeps its path
  EXPECT_EQ(tree.name(kBlock), "generator.block");
  tree.rename_root(kOther, "generator");
  EXPECT_EQ(tree.name(kOther), "generator#2");
  tree.rename_root(kOther, "generator#2");  // no other root has this name
  EXPECT_EQ(tree.name(kOther), "generator#2");
  tree.rename_root(kNet, "critic");
  tree.name_root(ModuleId{5}, "generator");  // free again
  EXPECT_EQ(tree.name(ModuleId{5}), "generator");
  tree.name_root(ModuleId{6}, "Net");
  EXPECT_EQ(tree.name(ModuleId{6}), "Net");
}

TEST(ModuleTree, ModuleCannotBeItsOwnDescendant) {
  ModuleTree tree = net_block_linear();
  tree.name_child(kNet, kLinear, "loop");
  tree.name_child(kBlock, kBlock, "self");
  EXPECT_EQ(tree.name(kNet), "Net");
  EXPECT_EQ(tree.name(kBlock), "Net.block");
}

TEST(ModuleTree, NamingAChildOfAnUnnamedModuleThrowsAndChangesNothing) {
  ModuleTree tree = net_block_linear();
  EXPECT_THROW(tree.name_child(kLinear, kOther, "0"), std::out_of_range);
  EXPECT_EQ(tree.name(kLinear), "Net.block.0");
  EXPECT_FALSE(tree.knows(kOther));
}

TEST(ModuleTree, ShortNameIsTheShortenedName) {
  ModuleTree tree;
  tree.name_root(ModuleId{1}, "Net");
  for (uint32_t id = 2; id <= 1000; ++id) {
    tree.name_child(ModuleId{id}, ModuleId{id - 1}, std::to_string(id));
  }
  for (const uint32_t id : {1u, 2u, 127u, 128u, 129u, 130u, 1000u}) {
    EXPECT_EQ(tree.short_name(ModuleId{id}), shorten_path(tree.name(ModuleId{id})));
  }
}

TEST(ModuleTree, SweepDropsUnreferencedDeadModules) {
  ModuleTree tree = net_block_linear();
  tree.mark_dead(kBlock);
  tree.mark_dead(kLinear);
  EXPECT_EQ(tree.dead_count(), 2U);
  tree.sweep([](ModuleId module) { return module == kLinear; });
  EXPECT_EQ(tree.dead_count(), 1U);
  EXPECT_FALSE(tree.knows(kBlock));
  EXPECT_EQ(tree.name(kLinear), "Net.block.0");
  tree.sweep([](ModuleId) { return false; });
  EXPECT_FALSE(tree.knows(kLinear));
  EXPECT_TRUE(tree.knows(kNet));
}

}  // namespace
}  // namespace tidegauge
