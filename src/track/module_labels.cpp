// SPDX-License-Identifier: BSD-3-Clause
#include "track/module_labels.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "capture/compat/torch_thread.h"

namespace tidegauge {
namespace {

using Kind = ModuleView::Kind;
using VisitModule = c10::function_ref<void(const ModuleView& module, ModuleId id)>;

Role role_of(Kind kind) { return kind == Kind::Parameter ? Role::IsParameter : Role::IsBuffer; }

/// Visits a module and all modules below it, each once.
void visit_modules(const ModuleView& module, std::unordered_set<ModuleId>& seen,
                   VisitModule visit) {
  const ModuleId id = module.intern();
  if (!seen.insert(id).second) return;
  visit(module, id);
  module.visit_children(
      [&](std::string_view, const ModuleView& child) { visit_modules(child, seen, visit); });
}

void visit_modules(const ModuleView& module, VisitModule visit) {
  std::unordered_set<ModuleId> seen;
  visit_modules(module, seen, visit);
}

/// Of a sparse gradient only the values: its indices may be those of an input.
at::Tensor gradient_memory(const at::Tensor& gradient) {
  return gradient.layout() == c10::kSparse ? gradient._values() : gradient;
}

int64_t observe_bytes(MemEngine& engine, const ModuleView& module, Kind kind) {
  std::vector<at::Tensor> all;
  visit_modules(module, [&](const ModuleView& each, ModuleId) {
    each.visit_owned(kind, [&](std::string_view, const OwnedTensor&, at::TensorList tensors) {
      all.insert(all.end(), tensors.begin(), tensors.end());
    });
  });
  return engine.observe_bytes(all);
}

}  // namespace

ModuleLabels::ModuleLabels(const ModuleSource& source)
    : source_(source), has_gil_(source.is_guarded_by_gil()) {}

void ModuleLabels::label(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by) {
  const auto guard = lock();
  label_all(engine, module, labelled_by);
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
  label_all(engine, module, LabelledBy::Hook);
  engine.set_module_size(id, SizeOf::Parameters, observe_bytes(engine, module, Kind::Parameter));
  engine.set_module_size(id, SizeOf::Buffers, observe_bytes(engine, module, Kind::Buffer));
}

void ModuleLabels::label_all(MemEngine& engine, const ModuleView& module, LabelledBy labelled_by) {
  visit_modules(module, [&](const ModuleView& each, ModuleId id) {
    label_owned(engine, each, id, labelled_by);
    modules_.insert(id).first->user = torch_thread::id();
    label_gradients(engine, each, labelled_by);
  });
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
