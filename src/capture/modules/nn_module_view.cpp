// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/nn_module_view.h"

#include <algorithm>
#include <unordered_set>

#include "capture/modules/nn_module_registry.h"

namespace tidegauge {
namespace {

/// Null if the tensor has no storage or was destroyed.
const c10::StorageImpl* storage_of(const c10::TensorImpl& tensor) {
  return tensor.unsafe_storage().unsafeGetStorageImpl();
}

class NnModuleSource final : public ModuleSource {
 public:
  std::shared_ptr<const ModuleView> view(ModuleId module) const override {
    auto alive = NnModuleRegistry::get().resolve(module);
    return alive ? std::make_shared<NnModuleView>(std::move(alive)) : nullptr;
  }
  bool is_alive(ModuleId module) const override { return NnModuleRegistry::get().is_alive(module); }
  bool is_guarded_by_gil() const override { return false; }
  bool names_direct_children_only() const override { return false; }
};

}  // namespace

ModuleId NnModuleView::intern() const { return NnModuleRegistry::get().intern(*module_); }

std::string NnModuleView::root_name() const {
  std::string name = class_name();
  const size_t arguments = std::min(name.find('<'), name.size());
  const size_t scope = name.rfind("::", arguments);
  if (scope != std::string::npos) name.erase(0, scope + 2);
  constexpr std::string_view kSuffix = "Impl";
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  return name;
}

void NnModuleView::visit_children(VisitChild visit) const {
  std::unordered_set<const torch::nn::Module*> visited;
  for (const auto& child : module_->named_children()) {
    if (!visited.insert(child.value().get()).second) continue;
    visit(child.key(), NnModuleView(child.value()));
  }
}

void NnModuleView::visit_owned(Kind kind, VisitOwned visit) const {
  const auto tensors = kind == Kind::Parameter ? module_->named_parameters(/*recurse=*/false)
                                               : module_->named_buffers(/*recurse=*/false);
  for (const auto& named : tensors) {
    const at::Tensor& tensor = named.value();
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    visit(named.key(),
          {impl, storage_of(*impl),
           c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())},
          tensor);
  }
}

void NnModuleView::visit_gradients(VisitGradient visit) const {
  for (const at::Tensor& parameter : module_->parameters(/*recurse=*/false)) {
    const at::Tensor& grad = parameter.grad();
    if (grad.defined()) visit(parameter, grad);
  }
}

bool NnModuleView::has_exchanged(std::span<const OwnedTensor> last) const {
  return std::any_of(last.begin(), last.end(), [](const OwnedTensor& owned) {
    // Safe even if the tensor was released: the weak reference keeps the object, without a storage.
    return storage_of(*owned.tensor._unsafe_get_target()) != owned.storage;
  });
}

const ModuleSource& nn_modules() {
  static const auto* source = new NnModuleSource;
  return *source;
}

}  // namespace tidegauge
