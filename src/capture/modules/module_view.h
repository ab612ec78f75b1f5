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

/// A parameter or buffer as a module owned it when it was last read.
struct OwnedTensor {
  const void* object = nullptr;               ///< its identity: compared, never followed
  const c10::StorageImpl* storage = nullptr;  ///< likewise
  /// Only for torch::nn: the tensor itself. Python's tensors are not held even weakly, since
  /// torch.utils.swap_tensors refuses a tensor that has weak references.
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor =
      c10::weak_intrusive_ptr<c10::TensorImpl>::reclaim(nullptr);
};

/// One module of a front end: an nn.Module of Python, or a torch::nn::Module. Labels
/// (track/module_labels.h) and names (module_naming.h) are made from these functions alone.
///
/// `memory` is the list of tensors that hold the memory of one tensor: itself, or the parts of a
/// wrapper subclass.
class TIDEGAUGE_API ModuleView {
 public:
  enum class Kind : uint8_t { Parameter, Buffer };
  using VisitChild = c10::function_ref<void(std::string_view name, const ModuleView& child)>;
  using VisitOwned =
      c10::function_ref<void(std::string_view name, OwnedTensor owned, at::TensorList memory)>;
  using VisitGradient =
      c10::function_ref<void(at::TensorList parameter_memory, at::TensorList gradient_memory)>;

  virtual ~ModuleView();

  /// The id of the module, which gets one if it has none.
  virtual ModuleId intern() const = 0;
  /// With its namespace: "torch.nn.modules.linear.Linear", "torch::nn::LinearImpl".
  virtual std::string class_name() const = 0;
  /// The name as a root: "Linear".
  virtual std::string root_name() const = 0;

  /// Each child once, under its first name.
  virtual void visit_children(VisitChild visit) const = 0;
  /// The parameters or buffers of the module itself, not those of its children.
  virtual void visit_owned(Kind kind, VisitOwned visit) const = 0;
  /// The gradients of its own parameters.
  virtual void visit_gradients(VisitGradient visit) const = 0;

  /// Quick check at each call: False if the module owns the tensors and storages in `last`.
  virtual bool has_exchanged(std::span<const OwnedTensor> last) const = 0;
  /// Full check: also True if the module may own tensors that are not in `last`.
  virtual bool may_own_others(std::span<const OwnedTensor> last) const = 0;
};

/// All modules of a front end. One object per front end, never destroyed.
class TIDEGAUGE_API ModuleSource {
 public:
  virtual ~ModuleSource();

  /// Null if the module died. Holds the module.
  virtual std::shared_ptr<const ModuleView> view(ModuleId module) const = 0;
  virtual bool is_alive(ModuleId module) const = 0;
  /// True: every caller holds the GIL, which also guards the modules. False: any thread calls, and
  /// a module belongs to the thread that called it last.
  virtual bool is_guarded_by_gil() const = 0;
  /// Which modules below a running module get names when an unknown module is called: all of them
  /// or, as upstream does, only if the unknown module is a direct child.
  virtual bool names_direct_children_only() const = 0;
};

}  // namespace tidegauge
