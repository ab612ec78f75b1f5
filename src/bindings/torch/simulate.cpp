// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/simulate.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/python_stack.h"
#include "rehearse/answers.h"
#include "simulate/adopt.h"
#include "simulate/claimed_cuda.h"
#include "simulate/fused_ops.h"
#include "simulate/known_values.h"
#include "simulate/session.h"
#include "simulate/simulated_tensor.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// A stand-in for the address of a simulated storage; null for a storage without bytes.
int64_t address_of(const c10::Storage& storage) {
  return storage.nbytes() == 0 ? 0 : reinterpret_cast<int64_t>(storage.unsafeGetStorageImpl());
}
int64_t address_of_tensor(const at::Tensor& tensor) {
  const int64_t storage = address_of(tensor.storage());
  return storage == 0 ? 0
                      : storage + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}
bool is_simulated_storage(const c10::Storage& storage) {
  return simulation::SimulatedStorage::find(storage) != nullptr;
}

/// Calls a Python function; routers may run in a thread without the GIL (recomputed in backward).
decltype(SimulationPolicy::routing) make_routing(const py::object& function) {
  if (function.is_none()) return {};
  const std::shared_ptr<py::object> kept(new py::object(function), [](py::object* last) {
    const py::gil_scoped_acquire gil;
    delete last;
  });
  return [kept](int64_t tokens, int64_t choices, int64_t experts) {
    const py::gil_scoped_acquire gil;
    return (*kept)(tokens, choices, experts).cast<at::Tensor>();
  };
}

std::optional<at::Tensor> known_values_of(const at::Tensor& tensor) {
  const at::Tensor values = simulation::known_values::find(tensor);
  return values.defined() ? std::optional(values.clone()) : std::nullopt;
}

}  // namespace

void bind_simulate(py::module_& m) {
  py::class_<OpCoverage>(m, "OpCoverage")
      .def_readonly("op", &OpCoverage::op)
      .def_readonly("calls", &OpCoverage::calls)
      .def_readonly("cached", &OpCoverage::cached)
      .def_readonly("is_decomposed", &OpCoverage::is_decomposed)
      .def("__repr__", [](const OpCoverage& self) {
        return "OpCoverage(op='" + self.op + "', calls=" + std::to_string(self.calls) +
               ", cached=" + std::to_string(self.cached) +
               ", is_decomposed=" + (self.is_decomposed ? "True" : "False") + ")";
      });
  m.def(
      "simulation_start",
      [](std::optional<double> item, double mask_fraction, const py::object& routing,
         const std::vector<std::string>& decomposed) {
        simulation::set_locate(&user_line);
        simulation::start({item, mask_fraction, make_routing(routing)}, decomposed);
      },
      py::arg("item"), py::arg("mask_fraction"), py::arg("routing"), py::arg("decomposed"));
  m.def(
      "answer_standin_values",
      [](double number, double mask_fraction, const py::object& routing) {
        return rehearsal::answer_values({number, mask_fraction, make_routing(routing)});
      },
      py::arg("number"), py::arg("mask_fraction") = 1.0, py::arg("routing") = py::none());
  m.def("simulation_stop", &simulation::stop);
  m.def("simulation_is_on", &simulation::is_on);
  const auto made = [](bool only_integers) {
    return only_integers ? simulation::Made::Integers : simulation::Made::All;
  };
  m.def(
      "simulation_pause", [=](bool only_integers) { simulation::pause(made(only_integers)); },
      py::arg("only_integers"));
  m.def(
      "simulation_resume", [=](bool only_integers) { simulation::resume(made(only_integers)); },
      py::arg("only_integers"));
  m.def("simulation_is_paused", [] { return simulation::is_paused(simulation::Made::All); });
  m.def("simulation_coverage", &simulation::coverage);
  m.def("is_simulated", &simulation::is_simulated, py::arg("tensor"));
  m.def("adopt_tensors", &simulation::adopt, py::arg("tensors"), py::arg("device"));
  m.def("is_simulated_storage", &is_simulated_storage, py::arg("storage"));
  m.def("simulated_address", &address_of_tensor, py::arg("tensor"));
  m.def("simulated_storage_address", &address_of, py::arg("storage"));
  m.def(
      "claim_cuda",
      [](int device_count, std::pair<int, int> capability, int64_t multiprocessors,
         int64_t threads_per_multiprocessor) {
        claimed_cuda::install(device_count, {capability.first, capability.second, multiprocessors,
                                             threads_per_multiprocessor});
      },
      py::arg("device_count"), py::arg("capability"), py::arg("multiprocessors"),
      py::arg("threads_per_multiprocessor"));
  m.def("fused_ops", [] {
    const auto names = simulation::list_fused_ops();
    return std::vector<std::string>(names.begin(), names.end());
  });
  m.def("unclaim_cuda", [] {
    claimed_cuda::uninstall();
    // Python's part of torch notes, too, that it has initialised CUDA.
    torch::utils::set_requires_device_init(c10::kCUDA, true);
  });
  m.def("known_values", &known_values_of, py::arg("tensor"));
}

}  // namespace tidegauge::bindings
