// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/simulate.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/python_stack.h"
#include "simulate/adopt.h"
#include "simulate/claimed_cuda.h"
#include "simulate/known_values.h"
#include "simulate/session.h"
#include "simulate/simulated_tensor.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// Stands for the address of memory that is not there.
int64_t address_of(const at::Tensor& tensor) {
  const auto storage = reinterpret_cast<int64_t>(tensor.storage().unsafeGetStorageImpl());
  return storage + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
}

std::optional<at::Tensor> known_values_of(const at::Tensor& tensor) {
  const at::Tensor values = simulation::known_values::find(tensor);
  return values.defined() ? std::optional(values.clone()) : std::nullopt;
}

}  // namespace

void bind_simulate(py::module_& m) {
  py::class_<simulation::OpCoverage>(m, "OpCoverage")
      .def_readonly("op", &simulation::OpCoverage::op)
      .def_readonly("calls", &simulation::OpCoverage::calls)
      .def_readonly("cached", &simulation::OpCoverage::cached)
      .def_readonly("is_decomposed", &simulation::OpCoverage::is_decomposed)
      .def("__repr__", [](const simulation::OpCoverage& self) {
        return "OpCoverage(op='" + self.op + "', calls=" + std::to_string(self.calls) +
               ", cached=" + std::to_string(self.cached) +
               ", is_decomposed=" + (self.is_decomposed ? "True" : "False") + ")";
      });
  m.def(
      "simulation_start",
      [](std::optional<double> item, double mask_fraction,
         const std::vector<std::string>& decomposed) {
        simulation::set_locate(&user_line);
        simulation::start({item, mask_fraction}, decomposed);
      },
      py::arg("item"), py::arg("mask_fraction"), py::arg("decomposed"));
  m.def("simulation_stop", &simulation::stop);
  m.def("simulation_pause", &simulation::pause);
  m.def("simulation_resume", &simulation::resume);
  m.def("simulation_coverage", &simulation::coverage);
  m.def("is_simulated", &simulation::is_simulated, py::arg("tensor"));
  m.def("adopt_tensors", &simulation::adopt, py::arg("tensors"), py::arg("device"));
  m.def("simulated_address", &address_of, py::arg("tensor"));
  m.def("claim_cuda", &claimed_cuda::install, py::arg("device_count"));
  m.def("unclaim_cuda", &claimed_cuda::uninstall);
  m.def("known_values", &known_values_of, py::arg("tensor"));
}

}  // namespace tidegauge::bindings
