// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>

#include "capture/modules/module_view.h"

namespace tidegauge {

/// A torch::nn::Module.
class TIDEGAUGE_API NnModuleView final : public ModuleView {
 public:
  /// Does not keep the module alive.
  explicit NnModuleView(const torch::nn::Module& module)
      : module_(std::shared_ptr<void>(), &module) {}
  explicit NnModuleView(std::shared_ptr<const torch::nn::Module> module)
      : module_(std::move(module)) {}

  ModuleId intern() const override;
  std::string class_name() const override { return module_->name(); }
  /// `(anonymous namespace)::NetImpl` -> `Net`.
  std::string root_name() const override;
  void visit_children(VisitChild visit) const override;
  void visit_owned(Kind kind, VisitOwned visit) const override;
  void visit_gradients(VisitGradient visit) const override;
  /// Reads the tensors in `last`: reading the module would copy all names.
  bool has_exchanged(std::span<const OwnedTensor> last) const override;
  /// Always true: reading the module costs as much as labelling it again.
  bool may_own_others(std::span<const OwnedTensor>) const override { return true; }

 private:
  const std::shared_ptr<const torch::nn::Module> module_;
};

/// The modules in NnModuleRegistry.
TIDEGAUGE_API const ModuleSource& nn_modules();

}  // namespace tidegauge
