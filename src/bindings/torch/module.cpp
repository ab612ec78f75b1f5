// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include "bindings/torch/allocation_failures.h"
#include "bindings/torch/ddp.h"
#include "bindings/torch/entering.h"
#include "bindings/torch/fsdp.h"
#include "bindings/torch/module_calls.h"
#include "bindings/torch/op_log.h"
#include "bindings/torch/py_mem_tracker.h"
#include "bindings/torch/py_mod_tracker.h"
#include "bindings/torch/python_stack.h"
#include "bindings/torch/recording.h"
#include "bindings/torch/simulate.h"

PYBIND11_MODULE(_C, m) {
  // Has EventSource and PostMortem, which classes here derive from and return, and translates our
  // exceptions.
  pybind11::module_::import("tidegauge._core");
  m.doc() = "The native part of tidegauge that uses torch. Private: use the tidegauge package.";
  tidegauge::bindings::bind_entering(m);
  tidegauge::bindings::bind_mod_tracker(m);
  tidegauge::bindings::bind_module_calls(m);
  tidegauge::bindings::bind_python_stack(m);
  tidegauge::bindings::bind_allocation_failures(m);
  tidegauge::bindings::bind_recorder(m);
  auto mem_tracker = tidegauge::bindings::bind_mem_tracker(m);
  tidegauge::bindings::bind_mem_events(m);
  tidegauge::bindings::bind_memory_trace(m);
  tidegauge::bindings::bind_ddp(m);
  tidegauge::bindings::bind_fsdp(m);
  tidegauge::bindings::bind_units(mem_tracker);
  tidegauge::bindings::bind_simulate(m);
  tidegauge::bindings::bind_op_log(m);
}
