// SPDX-License-Identifier: BSD-3-Clause
#include "track/module_labels.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "capture/compat/torch_thread.h"

namespace tidegauge {
namespace {

using Kind = ModuleView::Kind;

// Note [Sizes of nested modules]
// The sizes of a module include all modules below it. A first call of a root walks over all of
// them once and finds the sizes of each (SubtreeSizes). When a module below is called in the same
// root call, its sizes are still right unless the program has exchanged or resized tensors in
// between. So the module and up to `kMostChecked` modules below it are compared with the walk: all
// of them unless the module is very large, and then the first ones, in the order of the walk.
// Otherwise n modules, each below the one before, would cost n * n / 2 visits.
constexpr int kMostChecked = 64;

Role role_of(Kind kind) { return kind == Kind::Parameter ? Role::IsParameter : Role::IsBuffer; }

/// Of a sparse gradient only the values: its indices may be those of an input.
at::Tensor gradient_memory(const at::Tensor& gradient) {
  return gradient.layout() == c10::kSparse ? gradient._values() : gradient;
}

using VisitMemory = c10::function_ref<void(size_t kind, StorageId storage, int64_t size_bytes)>;

/// Visits the known storages of the module's own parameters and buffers.
void visit_memory(MemEngine& engine, const ModuleView& module, VisitMemory visit) {
  for (const Kind kind : {Kind::Parameter, Kind::Buffer}) {
    module.visit_owned(kind, [&](std::string_view, const OwnedTensor&, at::TensorList tensors) {
      engine.visit_known(tensors, [&](StorageId storage, int64_t size_bytes) {
        visit(static_cast<size_t>(kind), storage, size_bytes);
      });
    });
  }
}

}  // namespace

ModuleLabels::ModuleLabels(const ModuleSource& source)
    : source_(source), has_gil_(source.is_guarded_by_gil()) {}

void ModuleLabels::label(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by) {
  const auto guard = lock();
  label_all(engine, module, labelled_by);
}

void ModuleLabels::on_root_call() {
  const auto guard = lock();
  ++walk_;
}

void ModuleLabels::on_call(MemEngine& engine, const ModuleView& module, ModuleId id) {
  const auto guard = lock();
  LabelledModule* labelled = modules_.find(id);
  if (labelled == nullptr || !labelled->is_described) return describe(engine, module, id);
  labelled->user = torch_thread::id();
  if (module.has_exchanged(labelled->owned)) label_owned(engine, module, id, LabelledBy::Hook);
}

void ModuleLabels::on_compiled_call(MemEngine& engine, const ModuleView& module, ModuleId id) {
  const auto guard = lock();
  LabelledModule* labelled = modules_.insert(id).first;
  if (std::exchange(labelled->is_described, true)) return;
  label_all(engine, module, LabelledBy::Hook);
}

void ModuleLabels::describe(MemEngine& engine, const ModuleView& module, ModuleId id) {
  modules_.insert(id).first->is_described = true;
  if (engine.is_recording()) engine.name_class(id, module.class_name());
  int modules_left = kMostChecked;
  const LabelledModule* labelled = modules_.find(id);
  if (!labelled->has_subtree_bytes || !is_as_walked(engine, module, modules_left)) {
    label_all(engine, module, LabelledBy::Hook);
  }
  const auto [parameter_bytes, buffer_bytes] = modules_.insert(id).first->subtree_bytes;
  engine.set_module_size(id, SizeOf::Parameters, parameter_bytes);
  engine.set_module_size(id, SizeOf::Buffers, buffer_bytes);
}

/// See Note [Sizes of nested modules].
bool ModuleLabels::is_as_walked(MemEngine& engine, const ModuleView& module, int& modules_left) {
  if (modules_left-- <= 0) return true;
  const ModuleId id = module.intern();
  const LabelledModule* labelled = modules_.find(id);
  if (labelled == nullptr || labelled->walk != walk_ || module.may_own_others(labelled->owned)) {
    return false;
  }
  int64_t left_bytes = labelled->own_bytes;
  visit_memory(engine, module, [&](size_t, StorageId, int64_t bytes) { left_bytes -= bytes; });
  bool is_same = left_bytes == 0;
  module.visit_children([&](std::string_view, const ModuleView& child) {
    is_same = is_same && is_as_walked(engine, child, modules_left);
  });
  return is_same;
}

void ModuleLabels::label_all(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by) {
  Walk sizes;
  walk(engine, module, labelled_by, sizes);
  for (size_t kind = 0; kind < sizes.size(); ++kind) {
    for (const auto& [id, size_bytes] : sizes[kind].finish()) {
      LabelledModule* labelled = modules_.find(id);
      if (labelled == nullptr) continue;  // destroyed during the walk
      labelled->subtree_bytes[kind] = size_bytes;
      labelled->has_subtree_bytes = true;
    }
  }
}

/// Labels the module and all modules below it, each once.
void ModuleLabels::walk(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by,
                        Walk& sizes) {
  const ModuleId id = module.intern();
  const bool is_first_visit = sizes[0].open(id);
  sizes[1].open(id);
  if (!is_first_visit) return;
  label_owned(engine, module, id, labelled_by);
  label_gradients(engine, module, labelled_by);
  int64_t own_bytes = 0;
  visit_memory(engine, module, [&](size_t kind, StorageId storage, int64_t size_bytes) {
    sizes[kind].add(storage, size_bytes);
    own_bytes += size_bytes;
  });
  LabelledModule* labelled = modules_.insert(id).first;
  labelled->user = torch_thread::id();
  labelled->walk = walk_;
  labelled->own_bytes = own_bytes;
  labelled->has_subtree_bytes = false;
  module.visit_children(
      [&](std::string_view, const ModuleView& child) { walk(engine, child, labelled_by, sizes); });
  for (SubtreeSizes& each : sizes) each.close();
}

void ModuleLabels::label_owned(MemEngine& engine, const ModuleView& module, ModuleId id,
                               LabelledBy labelled_by) {
  std::vector<OwnedTensor> owned;
  for (const Kind kind : {Kind::Parameter, Kind::Buffer}) {
    module.visit_owned(kind, [&](std::string_view name, OwnedTensor each, at::TensorList tensors) {
      for (const at::Tensor& tensor : tensors) {
        engine.label(tensor, role_of(kind), Since::Birth, id, labelled_by);
        if (engine.is_recording()) engine.name_owned(tensor, id, name);
      }
      owned.push_back(std::move(each));
    });
  }
  modules_.insert(id).first->owned = std::move(owned);
}

void ModuleLabels::label_gradients(MemEngine& engine, const ModuleView& module,
                                   LabelledBy labelled_by) {
  module.visit_gradients([&](at::TensorList parameter, at::TensorList gradient) {
    const Role role = gradient_role(engine, parameter);
    for (const at::Tensor& tensor : gradient) {
      engine.label(gradient_memory(tensor), role, Since::Birth, /*owner=*/{}, labelled_by);
    }
  });
}

Role ModuleLabels::gradient_role(MemEngine& engine, at::TensorList parameter) const {
  if (unit_modules_.empty()) return Role::IsGradient;
  const bool is_shard = std::any_of(parameter.begin(), parameter.end(), [&](const auto& tensor) {
    return engine.find_category(tensor) == Category::ShardedParam;
  });
  return is_shard ? Role::IsShardedGrad : Role::IsGradient;
}

void ModuleLabels::refresh(MemEngine& engine) {
  // Destroyed after the lock is released: a view may have the last reference to its module.
  std::vector<std::shared_ptr<const ModuleView>> alive;
  const auto guard = lock();
  for (const ModuleId id : labelled_modules()) {
    std::shared_ptr<const ModuleView> module = source_.view(id);
    const LabelledModule* labelled = modules_.find(id);
    if (!module || labelled == nullptr) continue;
    alive.push_back(module);
    // Without the GIL, another thread may change its own module or drop its gradients at any time.
    if (!has_gil_ && labelled->user != torch_thread::id()) continue;
    if (module->may_own_others(labelled->owned)) {
      label_owned(engine, *module, id, LabelledBy::Hook);
    }
    // The engine does not hold the GIL when it replaces gradients.
    if (has_gil_ && engine.has_backward_elsewhere()) continue;
    label_gradients(engine, *module, LabelledBy::Hook);
  }
}

std::vector<ModuleId> ModuleLabels::labelled_modules() const {
  std::vector<ModuleId> modules;
  modules.reserve(modules_.size());
  modules_.visit([&](const LabelledModule& each) { modules.push_back(each.module); });
  std::sort(modules.begin(), modules.end());
  return modules;
}

void ModuleLabels::forget_sizes() {
  const auto guard = lock();
  modules_.visit([](LabelledModule& each) { each.is_described = false; });
}

void ModuleLabels::forget(ModuleId module) {
  const auto guard = lock();
  modules_.erase(module);
  unit_modules_.erase(module);
}

std::vector<ModuleId> ModuleLabels::forget_dead() {
  const auto guard = lock();
  std::vector<ModuleId> dead = labelled_modules();
  std::erase_if(dead, [&](ModuleId module) { return source_.is_alive(module); });
  for (const ModuleId module : dead) modules_.erase(module);
  return dead;
}

bool ModuleLabels::is_parameter(const at::Tensor& leaf) const {
  std::vector<std::shared_ptr<const ModuleView>> alive;  // as in `refresh`
  const auto guard = lock();
  bool is_found = false;
  for (const ModuleId id : labelled_modules()) {
    std::shared_ptr<const ModuleView> module = source_.view(id);
    if (!module) continue;
    module->visit_owned(Kind::Parameter,
                        [&](std::string_view, const OwnedTensor& owned, at::TensorList) {
                          is_found |= owned.object == leaf.unsafeGetTensorImpl();
                        });
    alive.push_back(std::move(module));
    if (is_found) break;
  }
  return is_found;
}

}  // namespace tidegauge
