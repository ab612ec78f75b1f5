// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/compiled_steps.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <utility>

#include "bindings/torch/tensors.h"

namespace py = pybind11;

namespace tidegauge::bindings {

void CompiledSteps::add(py::handle optimizer) {
  std::erase_if(known_, [](const Known& each) { return each.optimizer().is_none(); });
  for (Known& each : known_) {
    if (each.optimizer().is(optimizer)) return each.history.clear();
  }
  known_.push_back({py::weakref(optimizer), {}});
}

CompiledSteps::Versions CompiledSteps::read_versions(py::handle optimizer) {
  Versions versions;
  if (optimizer.is_none()) return versions;
  for (const py::handle group : py::getattr(optimizer, "param_groups", py::list())) {
    for (const py::handle parameter : group["params"]) {
      if (!is_tensor(parameter.ptr())) continue;
      const at::Tensor& tensor = THPVariable_Unpack(parameter.ptr());
      versions.push_back(tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version()));
    }
  }
  return versions;
}

void CompiledSteps::begin_call() {
  std::vector<Versions>& before = before_.emplace_back();
  for (const Known& each : known_) before.push_back(read_versions(each.optimizer()));
}

std::vector<CompiledSteps::Step> CompiledSteps::end_call() {
  std::vector<Step> steps;
  if (before_.empty()) return steps;  // the tracker was entered within the call
  const std::vector<Versions> before = std::move(before_.back());
  before_.pop_back();
  for (size_t i = 0; i < std::min(before.size(), known_.size()); ++i) {
    Known& known = known_[i];
    const py::object optimizer = known.optimizer();
    const auto update = known.history.add_call(before[i], read_versions(optimizer));
    if (update == UpdateHistory::Update::None) continue;
    steps.push_back({optimizer, update == UpdateHistory::Update::NewStep});
  }
  return steps;
}

}  // namespace tidegauge::bindings
