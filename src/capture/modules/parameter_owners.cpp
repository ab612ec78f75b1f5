// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/parameter_owners.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

ModuleId ParameterOwners::search(const at::Tensor& parameter, Ids modules, VisitModule visit) {
  std::sort(modules.begin(), modules.end());
  for (const ModuleId module : modules) {
    bool is_owner = false;
    visit(module, [&](const at::Tensor& own) { is_owner |= own.is_same(parameter); });
    if (is_owner) return module;
  }
  return {};
}

ParameterOwners::Table ParameterOwners::read(Ids modules, VisitModule visit) {
  std::sort(modules.begin(), modules.end());
  Table owners;
  for (const ModuleId module : modules) {
    visit(module,
          [&](const at::Tensor& own) { owners.emplace(own.unsafeGetTensorImpl(), module); });
  }
  return owners;
}

ModuleId ParameterOwners::intern(const at::Tensor& parameter, c10::function_ref<Ids()> modules,
                                 VisitModule visit) {
  const c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  auto it = owners_.find(impl);
  if (it != owners_.end() && !it->second.parameter.expired()) return it->second.module;
  owners_.clear();
  Ids ids = modules();
  std::sort(ids.begin(), ids.end());
  for (const ModuleId id : ids) {
    visit(id, [&](const at::Tensor& own) {
      owners_.emplace(own.unsafeGetTensorImpl(), Owner{WeakTensor(own.getIntrusivePtr()), id});
    });
  }
  // If no module has the parameter, store that, so that the modules are not read again for it.
  it = owners_.emplace(impl, Owner{WeakTensor(parameter.getIntrusivePtr()), {}}).first;
  return it->second.module;
}

}  // namespace tidegauge
