// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "capture/modules/module_view.h"
#include "core/events/ids.h"
#include "core/util/flat_table.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"
#include "track/memory_tracker.h"

namespace tidegauge {

/// Labels what the modules of one tracker own: parameters, buffers and gradients.
///
/// A program can exchange the memory of a parameter or gradient without any call that we observe
/// (`p.data = `, `p.grad = `, `half()`, `set_data`). So a module is compared with the last look
/// whenever it is called, and all modules are before a tracker answers.
///
/// Thread-safe: by the GIL for Python's modules, whose functions may run Python code, and by a lock
/// for those of torch::nn. No caller holds a lock of ours; the lock of StorageRegistry is taken
/// within this one.
class TIDEGAUGE_API ModuleLabels {
 public:
  explicit ModuleLabels(const ModuleSource& source);

  /// Labels the parameters, buffers and gradients of a module and of all modules below it.
  void label(MemoryTracker& memory, const ModuleView& module, NamedBy named_by);
  /// The module begins a forward: records its class and sizes the first time, labels its
  /// parameters and buffers if they have changed since the last look.
  void on_call(MemoryTracker& memory, const ModuleView& module, ModuleId id);
  /// A compiled module was called: labels it and all below it the first time.
  void on_compiled_call(MemoryTracker& memory, const ModuleView& module, ModuleId id);
  /// Labels what all modules own by now.
  void refresh(MemoryTracker& memory);

  /// The statistics were reset: the next call of each module records its sizes again.
  void forget_sizes();
  void forget(ModuleId module);
  /// Forgets the modules that died and returns them.
  std::vector<ModuleId> forget_dead();

  bool is_parameter(const at::Tensor& leaf) const;

  /// The module belongs to a sharded unit.
  void add_unit_module(ModuleId module) { unit_modules_.insert(module); }
  bool is_unit_module(ModuleId module) const { return unit_modules_.contains(module); }

 private:
  struct LabelledModule {
    ModuleId module;
    std::vector<OwnedTensor> owned;
    bool is_described = false;
    uint64_t user = 0;  ///< the thread that called or labelled it last, by torch's number
  };

  std::unique_lock<SpinLock> lock() const {
    return has_gil_ ? std::unique_lock<SpinLock>() : std::unique_lock(mutex_);
  }
  [[gnu::noinline, gnu::cold]] void describe(MemoryTracker& memory, const ModuleView& module,
                                             ModuleId id);
  void label_all(MemoryTracker& memory, const ModuleView& module, NamedBy named_by);
  void label_owned(MemoryTracker& memory, const ModuleView& module, ModuleId id, NamedBy named_by);
  void label_gradients(MemoryTracker& memory, const ModuleView& module, NamedBy named_by);
  Role gradient_role(MemoryTracker& memory, at::TensorList parameter) const;
  std::vector<ModuleId> labelled_modules() const;

  const ModuleSource& source_;
  const bool has_gil_;
  mutable SpinLock mutex_;
  /// A function of a view may add or remove records here: look a record up again after each.
  FlatTable<LabelledModule, &LabelledModule::module> modules_;
  std::unordered_set<ModuleId> unit_modules_;
};

}  // namespace tidegauge
