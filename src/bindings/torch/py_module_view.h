// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "capture/modules/module_view.h"

namespace tidegauge::bindings {

/// A Python nn.Module. Needs the GIL. Reads `_parameters`, `_buffers` and `_modules` from the
/// dictionary of the object: nn.Module has a __getattr__, which is three times as slow.
class PyModuleView final : public ModuleView {
 public:
  explicit PyModuleView(pybind11::object module) : module_(std::move(module)) {}
  explicit PyModuleView(pybind11::handle module)
      : module_(pybind11::reinterpret_borrow<pybind11::object>(module)) {}

  /// Raises TypeError like PyModuleRegistry::intern.
  ModuleId intern() const override;
  std::string class_name() const override;
  std::string root_name() const override;
  /// Distinguishes children by identity. (`named_children` skips the second of two children that
  /// compare equal.)
  void visit_children(VisitChild visit) const override;
  void visit_owned(Kind kind, VisitOwned visit) const override;
  void visit_gradients(VisitGradient visit) const override;
  /// Compares the dictionaries themselves. Runs no Python code.
  bool has_exchanged(std::span<const OwnedTensor> last) const override;
  bool may_own_others(std::span<const OwnedTensor> last) const override {
    return has_exchanged(last);
  }

 private:
  const pybind11::object module_;
};

/// The modules in PyModuleRegistry.
const ModuleSource& py_modules();

/// The full name of an object's class: "torch.nn.modules.linear.Linear".
std::string class_name(pybind11::handle object);

}  // namespace tidegauge::bindings
