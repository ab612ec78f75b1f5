// SPDX-License-Identifier: BSD-3-Clause
#include "track/module_labels.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "capture/compat/torch_thread.h"

namespace tidegauge {
namespace {

using Kind = ModuleView::Kind;

// Note [Sizes of nested modules]
// The sizes of a module include all modules below it, at the time of its first call. The first call
// of a root walks over all of them once and finds the sizes of each (SubtreeSizes). When a module
// below is called during the same root call, its sizes are still right unless the program has
// exchanged or resized tensors or modules in between. Nothing notifies us of that, so the module
// and all modules below it are compared with the walk, and walked again if they differ.
//
// For n modules, each below the one before, that would be n * n / 2 visits. So a root call has
// `kFreeVisits`, and `kVisitsPerModule` for each module of its first walk. They suffice unless more
// than 700 modules are nested in each other (Python's own limit of recursion is near 300). When
// they are used up, a module is compared alone, and a change of its own tensors is added to the
// sizes from the walk. Then the sizes of the modules above it may be wrong, which counts as a
// failure of ours.
constexpr int64_t kFreeVisits = 1 << 18;
constexpr int64_t kVisitsPerModule = 32;

Role role_of(Kind kind) { return kind == Kind::Parameter ? Role::IsParameter : Role::IsBuffer; }

/// Of a sparse gradient only the values: its indices may be those of an input.
at::Tensor gradient_memory(const at::Tensor& gradient) {
  return gradient.layout() == c10::kSparse ? gradient._values() : gradient;
}

void name_compiled_tree(MemEngine& engine, const ModuleView& module, const std::string& name,
                        std::unordered_set<ModuleId>& seen) {
  const ModuleId id = module.intern();
  if (!seen.insert(id).second) return;
  engine.name_compiled(id, name);
  module.visit_children([&](std::string_view child_name, const ModuleView& child) {
    name_compiled_tree(engine, child, name + '.' + std::string(child_name), seen);
  });
}

constexpr const char* kCompiled = " (compiled)";

/// "Net (compiled)", "Net (compiled).head", ... Skips dynamo's wrapper, which owns no tensors.
void name_compiled(MemEngine& engine, const ModuleView& module) {
  std::unordered_set<ModuleId> seen;
  module.visit_children([&](std::string_view name, const ModuleView& child) {
    if (name == "_orig_mod") name_compiled_tree(engine, child, child.root_name() + kCompiled, seen);
  });
  if (seen.empty()) name_compiled_tree(engine, module, module.root_name() + kCompiled, seen);
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

/// Their bytes by kind. A storage counts as often as it is owned.
std::array<int64_t, 2> sum_memory(MemEngine& engine, const ModuleView& module) {
  std::array<int64_t, 2> sum{};
  visit_memory(engine, module, [&](size_t kind, StorageId, int64_t bytes) { sum[kind] += bytes; });
  return sum;
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
  visits_left_ = kFreeVisits;
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
  if (engine.is_recording()) name_compiled(engine, module);
  label_all(engine, module, LabelledBy::Hook);
}

void ModuleLabels::describe(MemEngine& engine, const ModuleView& module, ModuleId id) {
  modules_.insert(id).first->is_described = true;
  if (engine.is_recording()) engine.name_class(id, module.class_name());
  read_sizes(engine, module, id);
  const auto [parameter_bytes, buffer_bytes] = modules_.insert(id).first->subtree_bytes;
  engine.set_module_size(id, SizeOf::Parameters, parameter_bytes);
  engine.set_module_size(id, SizeOf::Buffers, buffer_bytes);
}

/// Sets `subtree_bytes` of the module. See Note [Sizes of nested modules].
void ModuleLabels::read_sizes(MemEngine& engine, const ModuleView& module, ModuleId id) {
  const LabelledModule* labelled = modules_.find(id);
  if (labelled == nullptr || labelled->walk != walk_) {
    visits_left_ += kVisitsPerModule * label_all(engine, module, LabelledBy::Hook);
    return;
  }
  if (labelled->has_subtree_bytes) {
    if (visits_left_ <= 0) return read_own_size(engine, module, id);
    ++comparison_;
    if (is_as_walked(engine, module)) return;
  }
  visits_left_ -= label_all(engine, module, LabelledBy::Hook);
}

void ModuleLabels::read_own_size(MemEngine& engine, const ModuleView& module, ModuleId id) {
  const KindBytes own_bytes = sum_memory(engine, module);
  LabelledModule* labelled = modules_.find(id);
  if (labelled == nullptr || own_bytes == labelled->own_bytes) return;
  engine.failures().of_hooks().note("the sizes of nested modules",
                                    "tensors were exchanged during the first call of more than a "
                                    "thousand modules that are nested "
                                    "in each other, so sizes of modules above them may be wrong");
  for (size_t kind = 0; kind < own_bytes.size(); ++kind) {
    labelled->subtree_bytes[kind] += own_bytes[kind] - labelled->own_bytes[kind];
  }
  labelled->own_bytes = own_bytes;
  label_owned(engine, module, id, LabelledBy::Hook);
}

/// Compares the module and all modules below it with the walk, each once.
bool ModuleLabels::is_as_walked(MemEngine& engine, const ModuleView& module) {
  const ModuleId id = module.intern();
  LabelledModule* labelled = modules_.find(id);
  if (labelled == nullptr || labelled->walk != walk_) return false;
  if (std::exchange(labelled->comparison, comparison_) == comparison_) return true;
  --visits_left_;
  if (module.may_own_others(labelled->owned)) return false;
  const KindBytes own_bytes = labelled->own_bytes;
  const ModuleSequence children = labelled->children;
  bool is_same = sum_memory(engine, module) == own_bytes;
  ModuleSequence children_now;
  module.visit_children([&](std::string_view, const ModuleView& child) {
    children_now.append(child.intern());
    is_same = is_same && is_as_walked(engine, child);
  });
  return is_same && children_now == children;
}

/// Labels the module and all modules below it, and finds the sizes of each. Returns the number of
/// modules.
int64_t ModuleLabels::label_all(MemEngine& engine, const ModuleView& module,
                                LabelledBy labelled_by) {
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
  return sizes[0].visited_count();
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
  KindBytes own_bytes{};
  visit_memory(engine, module, [&](size_t kind, StorageId storage, int64_t size_bytes) {
    sizes[kind].add(storage, size_bytes);
    own_bytes[kind] += size_bytes;
  });
  ModuleSequence children;
  module.visit_children([&](std::string_view, const ModuleView& child) {
    children.append(child.intern());
    walk(engine, child, labelled_by, sizes);
  });
  for (SubtreeSizes& each : sizes) each.close();
  LabelledModule* labelled = modules_.insert(id).first;
  labelled->user = torch_thread::id();
  labelled->walk = walk_;
  labelled->own_bytes = own_bytes;
  labelled->children = children;
  labelled->has_subtree_bytes = false;
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
    return engine.read_category(tensor) == Category::ShardedParam;
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
