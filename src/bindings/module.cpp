// SPDX-License-Identifier: BSD-3-Clause
#include <pybind11/pybind11.h>

#include "bindings/mod_tracker.h"
#include "bindings/module_calls.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "The native part of tidegauge. Private: use the tidegauge package.";
  tidegauge::bindings::bind_mod_tracker(m);
  tidegauge::bindings::bind_module_calls(m);
}
