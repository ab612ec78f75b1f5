// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/modules/module_naming.h"
#include "capture/modules/nn_module_view.h"

namespace tidegauge {
namespace {

class ModuleNaming : public testing::Test {
 protected:
  static std::shared_ptr<torch::nn::Module> make(const std::string& class_name) {
    return std::make_shared<torch::nn::Module>(class_name);
  }
  static ModuleId id(const std::shared_ptr<torch::nn::Module>& module) {
    return NnModuleView(*module).intern();
  }
  void call(const std::shared_ptr<torch::nn::Module>& module) {
    name_called(*activity, nn_modules(), NnModuleView(*module), id(module));
    activity->enter(id(module), {});
  }
  std::string name(const std::shared_ptr<torch::nn::Module>& module) {
    return activity->name(id(module));
  }

  std::shared_ptr<ModuleActivity> activity =
      ModuleActivity::create([](const at::Tensor&) { return ModuleId(); });
  std::shared_ptr<torch::nn::Module> net = make("Net"), body = make("Body"), fc = make("Linear");
};

TEST_F(ModuleNaming, ModuleCalledOutsideOfOthersIsARootWithAllModulesBelow) {
  net->register_module("body", body);
  body->register_module("fc", fc);
  call(net);
  EXPECT_EQ(name(net), "Net");
  EXPECT_EQ(name(fc), "Net.body.fc");
}

TEST_F(ModuleNaming, ModuleThatWasAddedLaterGetsItsPathWhenItIsCalled) {
  call(net);
  net->register_module("body", body);
  body->register_module("fc", fc);
  EXPECT_FALSE(activity->knows(id(fc)));
  call(fc);
  EXPECT_EQ(name(fc), "Net.body.fc");
}

/// Further up, nobody searches, so the time is linear in the depth.
TEST_F(ModuleNaming, ModuleIsSearchedInTheLast256RunningModules) {
  call(net);
  call(body);
  std::vector<std::shared_ptr<torch::nn::Module>> others;
  for (int i = 0; i < 255; ++i) call(others.emplace_back(make("Other")));
  const auto far = make("Far"), near = make("Near");
  net->register_module("far", far);
  body->register_module("near", near);
  name_called(*activity, nn_modules(), NnModuleView(*near), id(near));
  EXPECT_EQ(name(near), "Body.near");
  name_called(*activity, nn_modules(), NnModuleView(*far), id(far));
  EXPECT_EQ(name(far), "Far");
}

TEST_F(ModuleNaming, ModuleThatNoRunningModuleContainsIsARoot) {
  call(net);
  call(fc);
  EXPECT_EQ(name(fc), "Linear");
}

TEST_F(ModuleNaming, SharedModuleKeepsItsFirstPath) {
  net->register_module("first", fc);
  net->register_module("second", fc);
  call(net);
  EXPECT_EQ(name(fc), "Net.first");
}

TEST_F(ModuleNaming, ModuleBelowItselfIsNamedOnce) {
  net->register_module("body", body);
  body->register_module("again", net);
  call(net);
  EXPECT_EQ(name(body), "Net.body");
  net->unregister_module("body");  // a cycle of shared_ptr would never be freed
}

}  // namespace
}  // namespace tidegauge
