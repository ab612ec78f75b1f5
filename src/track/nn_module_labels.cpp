// SPDX-License-Identifier: BSD-3-Clause
#include "track/nn_module_labels.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "capture/modules/nn_module_registry.h"
#include "capture/compat/torch_thread.h"

namespace tidegauge {
namespace {

/// Null if it has none.
const c10::StorageImpl* storage_of(const c10::TensorImpl& tensor) {
  return tensor.unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

bool NnModuleLabels::is_exchanged(const Owned& owned) {
  // Also safe if the tensor died: its memory stays as long as the weak reference does.
  return storage_of(*owned.tensor._unsafe_get_target()) != owned.storage;
}

void NnModuleLabels::label_own(MemoryTracker& memory, const torch::nn::Module& module,
                               Known& known) {
  known.owned.clear();
  const auto label = [&](const auto& tensors, Role role) {
    for (const auto& named : tensors) {
      const at::Tensor& tensor = named.value();
      memory.label(tensor, role, Since::Birth, known.module);
      if (memory.is_recording()) memory.name_owned(tensor, known.module, named.key());
      known.owned.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                             storage_of(*tensor.unsafeGetTensorImpl())});
    }
  };
  label(module.named_parameters(/*recurse=*/false), Role::IsParameter);
  label(module.named_buffers(/*recurse=*/false), Role::IsBuffer);
}

void NnModuleLabels::label_gradients(MemoryTracker& memory, const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    const at::Tensor& grad = parameter.grad();
    if (grad.defined()) memory.label(grad, Role::IsGradient, Since::Birth);
  }
}

void NnModuleLabels::label_all_below(MemoryTracker& memory, const torch::nn::Module& module) {
  module.apply([&](const torch::nn::Module& each) {
    Known& known = *known_.insert(NnModuleRegistry::get().intern(each)).first;
    known.user = torch_thread::id();
    label_own(memory, each, known);
    label_gradients(memory, each);
  });
}

void NnModuleLabels::track(MemoryTracker& memory, const torch::nn::Module& module) {
  const std::lock_guard lock(mutex_);
  label_all_below(memory, module);
}

void NnModuleLabels::look_at_call(MemoryTracker& memory, const torch::nn::Module& module,
                                  ModuleId id) {
  const std::lock_guard lock(mutex_);
  Known* known = known_.find(id);
  if (known == nullptr || !known->has_sizes) return tell_sizes(memory, module, id);
  known->user = torch_thread::id();
  if (std::any_of(known->owned.begin(), known->owned.end(), &is_exchanged)) {
    label_own(memory, module, *known);
  }
}

void NnModuleLabels::tell_sizes(MemoryTracker& memory, const torch::nn::Module& module,
                                ModuleId id) {
  if (memory.is_recording()) memory.name_class(id, module.name());
  label_all_below(memory, module);
  const auto tell = [&](SizeOf size_of, const std::vector<at::Tensor>& tensors) {
    memory.set_module_size(id, size_of, memory.known_bytes(tensors));
  };
  tell(SizeOf::Parameters, module.parameters());
  tell(SizeOf::Buffers, module.buffers());
  known_.find(id)->has_sizes = true;
}

void NnModuleLabels::refresh(MemoryTracker& memory) {
  // Outlives the lock: the last reference to a module may be ours by then.
  std::vector<std::shared_ptr<const torch::nn::Module>> alive;
  const std::lock_guard lock(mutex_);
  known_.visit([&](Known& known) {
    auto module = NnModuleRegistry::get().resolve(known.module);
    if (!module) return;
    // Another thread may be about to drop the gradients of what it trains.
    if (known.user == torch_thread::id()) {
      label_own(memory, *module, known);
      label_gradients(memory, *module);
    }
    alive.push_back(std::move(module));
  });
}

void NnModuleLabels::forget_sizes() {
  const std::lock_guard lock(mutex_);
  known_.visit([](Known& known) { known.has_sizes = false; });
}

std::vector<ModuleId> NnModuleLabels::forget_dead() {
  std::vector<ModuleId> dead;
  const std::lock_guard lock(mutex_);
  known_.visit([&](const Known& known) {
    if (!NnModuleRegistry::get().is_alive(known.module)) dead.push_back(known.module);
  });
  for (const ModuleId module : dead) known_.erase(module);
  return dead;
}

bool NnModuleLabels::is_parameter(const at::Tensor& leaf) const {
  std::vector<std::shared_ptr<const torch::nn::Module>> alive;
  bool is_found = false;
  const std::lock_guard lock(mutex_);
  known_.visit([&](const Known& known) {
    auto module = is_found ? nullptr : NnModuleRegistry::get().resolve(known.module);
    if (!module) return;
    for (const at::Tensor& own : module->parameters(/*recurse=*/false)) {
      is_found |= own.is_same(leaf);
    }
    alive.push_back(std::move(module));
  });
  return is_found;
}

}  // namespace tidegauge
