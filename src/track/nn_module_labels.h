// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "track/memory_tracker.h"
#include "core/util/flat_table.h"
#include "core/events/ids.h"
#include "core/util/spin_lock.h"

namespace tidegauge {

/// What the C++ modules that one tracker has come across own, and its labels. A parameter or
/// gradient may be exchanged without a word (`set_data`, `mutable_grad`, `to`): a module is looked
/// at whenever it is called, and all of them before an answer is given.
///
/// Thread-safe. Asked by threads that hold nothing of ours: the lock of StorageCapture is taken
/// within this one's.
class NnModuleLabels {
 public:
  /// Labels the parameters, buffers and gradients of a module and all below it.
  void track(MemoryTracker& memory, const torch::nn::Module& module);
  /// The module is about to run forward: its sizes are told if they are not known, its parameters
  /// and buffers are labelled if they are others than at the last look.
  void look_at_call(MemoryTracker& memory, const torch::nn::Module& module, ModuleId id);
  /// Labels what all modules own by now.
  void refresh(MemoryTracker& memory);
  /// The statistics were reset: sizes are not known any more.
  void forget_sizes();
  /// Forgets the modules that died, and says which.
  std::vector<ModuleId> forget_dead();
  bool is_parameter(const at::Tensor& leaf) const;

 private:
  /// A tensor and its storage at the last look. The weak reference keeps the address its own; a
  /// tensor that died has no storage.
  struct Owned {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    const c10::StorageImpl* storage;
  };
  struct Known {
    ModuleId module;
    std::vector<Owned> owned;
    bool has_sizes = false;
    uint64_t user = 0;  // the thread that told of it last, as torch numbers it
  };
  [[gnu::noinline, gnu::cold]] void tell_sizes(MemoryTracker& memory,
                                               const torch::nn::Module& module, ModuleId id);
  void label_all_below(MemoryTracker& memory, const torch::nn::Module& module);
  static void label_own(MemoryTracker& memory, const torch::nn::Module& module, Known& known);
  static void label_gradients(MemoryTracker& memory, const torch::nn::Module& module);
  static bool is_exchanged(const Owned& owned);

  mutable SpinLock mutex_;
  FlatTable<Known, &Known::module> known_;
};

}  // namespace tidegauge
