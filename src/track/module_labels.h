// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "capture/modules/module_view.h"
#include "core/events/ids.h"
#include "core/modules/subtree_sizes.h"
#include "core/util/flat_table.h"
#include "core/util/spin_lock.h"
#include "tidegauge/export.h"
#include "track/mem_engine.h"

namespace tidegauge {

/// Labels the parameters, buffers and gradients of the modules of one tracker.
///
/// A program can replace the memory of a parameter or gradient without any call that we observe
/// (`p.data = `, `p.grad = `, `half()`, `set_data`). So each call of a module checks whether its
/// tensors have changed, and before a tracker answers a query, all modules are checked.
///
/// Thread-safe. The GIL guards Python modules, whose functions may run Python code; a lock guards
/// torch::nn modules. Callers must hold none of our locks. The lock of StorageRegistry is taken
/// while this lock is held.
class TIDEGAUGE_API ModuleLabels {
 public:
  explicit ModuleLabels(const ModuleSource& source);

  /// Labels the parameters, buffers and gradients of a module and of all modules below it.
  void label(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by);
  /// Call when the module begins a forward. The first call records the class and sizes of the
  /// module. Later calls label its parameters and buffers again if they have changed.
  void on_call(MemEngine& engine, const ModuleView& module, ModuleId id);
  /// Call when a root module begins a forward, before `on_call`.
  void on_root_call();
  /// Call when a compiled module is called. The first call labels it and all modules below it.
  void on_compiled_call(MemEngine& engine, const ModuleView& module, ModuleId id);
  /// Labels the tensors of all modules that have changed since they were last labelled.
  void refresh(MemEngine& engine);

  /// Makes the next call of each module record its sizes again. Call after a reset of statistics.
  void forget_sizes();
  void forget(ModuleId module);
  /// Forgets the modules that were destroyed and returns their ids.
  std::vector<ModuleId> forget_dead();

  bool is_parameter(const at::Tensor& leaf) const;

  /// Marks a module as part of a sharded unit.
  void add_unit_module(ModuleId module) { unit_modules_.insert(module); }
  bool is_unit_module(ModuleId module) const { return unit_modules_.contains(module); }

 private:
  using KindBytes = std::array<int64_t, 2>;  // by ModuleView::Kind
  using Walk = std::array<SubtreeSizes, 2>;

  /// Stands for a list of modules: two lists are equal if their numbers are.
  struct ModuleSequence {
    uint64_t number = 0;

    void append(ModuleId module) { number = (number ^ module.value) * 0x9E3779B97F4A7C15 + 1; }
    bool operator==(const ModuleSequence&) const = default;
  };

  struct LabelledModule {
    ModuleId module;
    std::vector<OwnedTensor> owned;
    bool is_described = false;
    uint64_t walk = 0;      ///< the last walk that read the following; 0: none has
    KindBytes own_bytes{};  ///< of its own parameters and buffers
    ModuleSequence children;
    KindBytes subtree_bytes{};  ///< of all modules below it as well
    bool has_subtree_bytes = false;
    uint64_t comparison = 0;  ///< the last one that visited it
    uint64_t user = 0;        ///< torch's number of the thread that called or labelled it last
  };

  std::unique_lock<SpinLock> lock() const {
    return has_gil_ ? std::unique_lock<SpinLock>() : std::unique_lock(mutex_);
  }
  [[gnu::noinline, gnu::cold]] void describe(MemEngine& engine, const ModuleView& module,
                                             ModuleId id);
  void read_sizes(MemEngine& engine, const ModuleView& module, ModuleId id);
  void read_own_size(MemEngine& engine, const ModuleView& module, ModuleId id);
  bool is_as_walked(MemEngine& engine, const ModuleView& module);
  int64_t label_all(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by);
  void walk(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by, Walk& sizes);
  void label_owned(MemEngine& engine, const ModuleView& module, ModuleId id,
                   LabelledBy labelled_by);
  void label_gradients(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by);
  Role gradient_role(MemEngine& engine, at::TensorList parameter) const;
  std::vector<ModuleId> labelled_modules() const;

  const ModuleSource& source_;
  const bool has_gil_;
  mutable SpinLock mutex_;
  /// The functions of a ModuleView may add or remove records: look up a record again after each
  /// call of such a function.
  FlatTable<LabelledModule, &LabelledModule::module> modules_;
  std::unordered_set<ModuleId> unit_modules_;
  // Of the current root call, see Note [Sizes of nested modules].
  uint64_t walk_ = 0;  // its number
  int64_t visits_left_ = 0;
  uint64_t comparison_ = 0;  // the number of the comparison, in all root calls
};

}  // namespace tidegauge
