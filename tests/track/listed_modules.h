// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/modules/module_view.h"

namespace tidegauge {

/// A front end for tests: modules that are only lists. It is guarded like Python modules.
struct ListedModule {
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  std::string class_name;
  ModuleId id;
  NamedTensors parameters, buffers;
  std::vector<std::pair<std::string, std::shared_ptr<ListedModule>>> children;
};

class ListedView final : public ModuleView {
 public:
  explicit ListedView(std::shared_ptr<const ListedModule> module) : module_(std::move(module)) {}

  /// How often a module was asked for its children.
  static inline int64_t visit_count = 0;

  ModuleId intern() const override { return module_->id; }
  std::string class_name() const override { return "listed::" + module_->class_name; }
  std::string root_name() const override { return module_->class_name; }
  void visit_children(VisitChild visit) const override {
    ++visit_count;
    std::vector<ModuleId> visited;
    for (const auto& [name, child] : module_->children) {
      if (std::find(visited.begin(), visited.end(), child->id) != visited.end()) continue;
      visited.push_back(child->id);
      visit(name, ListedView(child));
    }
  }
  void visit_owned(Kind kind, VisitOwned visit) const override {
    for (const auto& [name, tensor] :
         kind == Kind::Parameter ? module_->parameters : module_->buffers) {
      visit(name, read(tensor), tensor);
    }
  }
  void visit_gradients(VisitGradient visit) const override {
    for (const auto& [name, tensor] : module_->parameters) {
      if (tensor.grad().defined()) visit(tensor, tensor.grad());
    }
  }
  bool has_exchanged(std::span<const OwnedTensor> last) const override {
    size_t count = 0;
    bool is_same = true;
    for (const Kind kind : {Kind::Parameter, Kind::Buffer}) {
      visit_owned(kind, [&](std::string_view, const OwnedTensor& now, at::TensorList) {
        is_same = is_same && count < last.size() && last[count].object == now.object &&
                  last[count].storage == now.storage;
        ++count;
      });
    }
    return !is_same || count != last.size();
  }
  bool may_own_others(std::span<const OwnedTensor> last) const override {
    return has_exchanged(last);
  }

 private:
  static OwnedTensor read(const at::Tensor& tensor) {
    return {tensor.unsafeGetTensorImpl(), tensor.storage().unsafeGetStorageImpl()};
  }

  const std::shared_ptr<const ListedModule> module_;
};

class ListedSource final : public ModuleSource {
 public:
  std::shared_ptr<const ModuleView> view(ModuleId module) const override {
    const auto alive = modules.at(module.value - 1).lock();
    return alive ? std::make_shared<ListedView>(alive) : nullptr;
  }
  bool is_alive(ModuleId module) const override { return !modules[module.value - 1].expired(); }
  bool is_guarded_by_gil() const override { return true; }
  bool names_direct_children_only() const override { return true; }

  std::vector<std::weak_ptr<const ListedModule>> modules;
};

struct ListedFrontEnd {
  using Module = std::shared_ptr<ListedModule>;

  static Module make(const std::string& class_name) {
    auto module = std::make_shared<ListedModule>();
    modules().modules.push_back(module);
    module->class_name = class_name;
    module->id = ModuleId(static_cast<uint32_t>(modules().modules.size()));
    return module;
  }
  static at::Tensor add_parameter(const Module& module, const std::string& name) {
    const at::Tensor parameter = torch::ones({16}).set_requires_grad(true);
    module->parameters.emplace_back(name, parameter);
    return parameter;
  }
  static void add_buffer(const Module& module, const std::string& name) {
    module->buffers.emplace_back(name, torch::ones({16}));
  }
  static void add_child(const Module& module, const std::string& name, const Module& child) {
    module->children.emplace_back(name, child);
  }
  static ListedView view(const Module& module) { return ListedView(module); }
  static const ModuleSource& source() { return modules(); }

 private:
  static ListedSource& modules() {
    static ListedSource all;
    return all;
  }
};

}  // namespace tidegauge
