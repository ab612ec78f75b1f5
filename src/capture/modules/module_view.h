// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/events/ids.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// A parameter or buffer at the time when its module was last read.
struct OwnedTensor {
  const void* object = nullptr;               ///< its identity: compared, never dereferenced
  const c10::StorageImpl* storage = nullptr;  ///< compared, never dereferenced
  /// The tensor itself, only for torch::nn. Python tensors are not held, not even weakly, because
  /// torch.utils.swap_tensors refuses a tensor that has weak references.
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor =
      c10::weak_intrusive_ptr<c10::TensorImpl>::reclaim(nullptr);
};

/// One module of a front end: a Python nn.Module or a torch::nn::Module. Labels
/// (track/module_labels.h) and names (module_naming.h) depend only on these functions.
///
/// `memory` lists the tensors that hold the memory of one tensor: the tensor itself, or the parts
/// of a wrapper subclass.
class TIDEGAUGE_API ModuleView {
 public:
  enum class Kind : uint8_t { Parameter, Buffer };
  using VisitChild = c10::function_ref<void(std::string_view name, const ModuleView& child)>;
  using VisitOwned =
      c10::function_ref<void(std::string_view name, OwnedTensor owned, at::TensorList memory)>;
  using VisitGradient =
      c10::function_ref<void(at::TensorList parameter_memory, at::TensorList gradient_memory)>;

  /// Returns the id of the module. Gives it one if it has none.
  virtual ModuleId intern() const = 0;
  /// The full name of the class: "torch.nn.modules.linear.Linear", "torch::nn::LinearImpl".
  virtual std::string class_name() const = 0;
  /// The name as a root: "Linear".
  virtual std::string root_name() const = 0;

  /// Visits each child once, with its first name.
  virtual void visit_children(VisitChild visit) const = 0;
  /// Visits the parameters or buffers of the module itself, not those of its children.
  virtual void visit_owned(Kind kind, VisitOwned visit) const = 0;
  /// Visits the gradients of the module's own parameters.
  virtual void visit_gradients(VisitGradient visit) const = 0;

  /// Quick check at each call: true if a tensor in `last` was replaced or has another storage.
  virtual bool has_exchanged(std::span<const OwnedTensor> last) const = 0;
  /// Full check: also true if the module may own tensors that are not in `last`.
  virtual bool may_own_others(std::span<const OwnedTensor> last) const = 0;

 protected:
  ~ModuleView() = default;  // only a shared_ptr of the real class owns a view
};

/// All modules of a front end. One object per front end, never destroyed.
class TIDEGAUGE_API ModuleSource {
 public:
  /// A view that keeps the module alive; null if the module was destroyed.
  virtual std::shared_ptr<const ModuleView> view(ModuleId module) const = 0;
  virtual bool is_alive(ModuleId module) const = 0;
  /// True if every caller holds the GIL, which also guards the modules. If false, any thread may
  /// call, and only the thread that called a module last may read it.
  virtual bool is_guarded_by_gil() const = 0;
  /// When an unknown module is called, the modules below a running module get names. True if this
  /// happens only if the unknown module is a direct child of the running one, as upstream does.
  virtual bool names_direct_children_only() const = 0;

 protected:
  ~ModuleSource() = default;
};

}  // namespace tidegauge
