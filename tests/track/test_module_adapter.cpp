// SPDX-License-Identifier: BSD-3-Clause
// Labels and names of modules, for each front end: torch::nn, and listed_modules.h.
// tests/python/trackers/mem/test_module_adapter.py runs the same checks on Python modules.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/modules/module_naming.h"
#include "capture/modules/nn_module_view.h"
#include "engine_tracking.h"
#include "listed_modules.h"
#include "track/module_labels.h"

namespace tidegauge {
namespace {

constexpr int64_t kRow = 16 * 4;  // the bytes of 16 floats

struct NnFrontEnd {
  using Module = std::shared_ptr<torch::nn::Module>;

  static Module make(const std::string& class_name) {
    return std::make_shared<torch::nn::Module>(class_name);
  }
  static at::Tensor add_parameter(const Module& module, const std::string& name) {
    return module->register_parameter(name, torch::ones({16}));
  }
  static void add_buffer(const Module& module, const std::string& name) {
    module->register_buffer(name, torch::ones({16}));
  }
  static void add_child(const Module& module, const std::string& name, const Module& child) {
    module->register_module(name, child);
  }
  static NnModuleView view(const Module& module) { return NnModuleView(*module); }
  static const ModuleSource& source() { return nn_modules(); }
};

/// A module "Net" with a weight, a mask, and a child "inner" with a weight.
template <typename FrontEnd>
class ModuleAdapter : public testing::Test {
 protected:
  ModuleAdapter() {
    weight = FrontEnd::add_parameter(net, "weight");
    FrontEnd::add_buffer(net, "mask");
    inner_weight = FrontEnd::add_parameter(inner, "weight");
    FrontEnd::add_child(net, "inner", inner);
  }

  void label() { labels.label(*tracking.engine, FrontEnd::view(net), LabelledBy::Hook); }
  void call(const typename FrontEnd::Module& module) {
    const auto view = FrontEnd::view(module);
    labels.on_call(*tracking.engine, view, view.intern());
  }
  std::optional<int64_t> parameter_size() {
    const ModuleId id = FrontEnd::view(net).intern();
    return tracking.engine->module_stats(id).size_bytes(SizeOf::Parameters);
  }

  typename FrontEnd::Module net = FrontEnd::make("Net");
  typename FrontEnd::Module inner = FrontEnd::make("Inner");
  at::Tensor weight, inner_weight;
  ModuleLabels labels{FrontEnd::source()};
  Tracking tracking;
};

using FrontEnds = testing::Types<NnFrontEnd, ListedFrontEnd>;
TYPED_TEST_SUITE(ModuleAdapter, FrontEnds);

TYPED_TEST(ModuleAdapter, LabelsParametersBuffersAndGradientsOfAllModules) {
  this->weight.mutable_grad() = torch::ones({16});
  this->label();
  EXPECT_EQ(this->tracking.now(Category::Parameter), 2 * kRow);
  EXPECT_EQ(this->tracking.now(Category::Buffer), kRow);
  EXPECT_EQ(this->tracking.now(Category::Gradient), kRow);
}

TYPED_TEST(ModuleAdapter, ExchangedParameterIsLabelledAtTheNextCall) {
  this->call(this->net);
  this->weight.set_data(torch::ones({32}));
  EXPECT_EQ(this->tracking.now(Category::Parameter), kRow);
  this->call(this->net);
  EXPECT_EQ(this->tracking.now(Category::Parameter), 3 * kRow);
}

TYPED_TEST(ModuleAdapter, NewParameterIsLabelledByRefresh) {
  this->label();
  TypeParam::add_parameter(this->inner, "bias");
  EXPECT_EQ(this->tracking.now(Category::Parameter), 2 * kRow);
  this->labels.refresh(*this->tracking.engine);
  EXPECT_EQ(this->tracking.now(Category::Parameter), 3 * kRow);
}

TYPED_TEST(ModuleAdapter, ExchangedGradientIsLabelledByRefresh) {
  this->label();
  this->weight.mutable_grad() = torch::ones({16});
  EXPECT_EQ(this->tracking.now(Category::Gradient), 0);
  this->labels.refresh(*this->tracking.engine);
  EXPECT_EQ(this->tracking.now(Category::Gradient), kRow);
}

TYPED_TEST(ModuleAdapter, SizesAreRecordedAtTheFirstCallAndAfterAReset) {
  this->call(this->net);
  EXPECT_EQ(this->parameter_size(), 2 * kRow);
  this->tracking.engine->reset_statistics();
  this->call(this->net);
  EXPECT_EQ(this->parameter_size(), std::nullopt);
  this->labels.forget_sizes();
  this->call(this->net);
  EXPECT_EQ(this->parameter_size(), 2 * kRow);
}

TYPED_TEST(ModuleAdapter, CompiledModuleIsLabelledWithoutSizes) {
  const auto view = TypeParam::view(this->net);
  this->labels.on_compiled_call(*this->tracking.engine, view, view.intern());
  EXPECT_EQ(this->tracking.now(Category::Parameter), 2 * kRow);
  EXPECT_EQ(this->parameter_size(), std::nullopt);
}

TYPED_TEST(ModuleAdapter, OnlyParametersOfLabelledModulesAreParameters) {
  EXPECT_FALSE(this->labels.is_parameter(this->weight));
  this->label();
  EXPECT_TRUE(this->labels.is_parameter(this->weight));
  EXPECT_TRUE(this->labels.is_parameter(this->inner_weight));
  EXPECT_FALSE(this->labels.is_parameter(torch::ones({16})));
}

TYPED_TEST(ModuleAdapter, DeadModulesAreForgotten) {
  this->label();
  const ModuleId dead = TypeParam::view(this->net).intern();
  this->net.reset();
  EXPECT_EQ(this->labels.forget_dead(), std::vector{dead});
  EXPECT_TRUE(this->labels.forget_dead().empty());
}

TYPED_TEST(ModuleAdapter, ChildHasTheNameOfItsPath) {
  const auto activity = ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; });
  TypeParam::add_child(this->net, "again", this->inner);
  const auto net = TypeParam::view(this->net);
  name_root(*activity, net, net.intern());
  EXPECT_EQ(activity->name(net.intern()), "Net");
  EXPECT_EQ(activity->name(TypeParam::view(this->inner).intern()), "Net.inner");
}

TYPED_TEST(ModuleAdapter, NewChildOfARunningModuleHasTheNameOfItsPath) {
  const auto activity = ModuleActivity::create([](const at::Tensor&) { return ModuleId{}; });
  const auto net = TypeParam::view(this->net);
  name_root(*activity, net, net.intern());
  activity->enter(net.intern(), {});
  const auto added = TypeParam::make("Added");
  TypeParam::add_child(this->net, "added", added);
  const auto view = TypeParam::view(added);
  name_called(*activity, TypeParam::source(), view, view.intern());
  EXPECT_EQ(activity->name(view.intern()), "Net.added");
  const auto stranger = TypeParam::make("Stranger");
  const auto other = TypeParam::view(stranger);
  name_called(*activity, TypeParam::source(), other, other.intern());
  EXPECT_EQ(activity->name(other.intern()), "Stranger");
}

}  // namespace
}  // namespace tidegauge
