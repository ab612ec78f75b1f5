// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "trace/progress.h"

namespace tidegauge::bindings {

/// For work without the GIL: tells `told`, if any, and stops at Ctrl-C.
inline Progress tell_python(const std::optional<pybind11::function>& told) {
  return [&told](double share) {
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    if (told) (*told)(share);
  };
}

}  // namespace tidegauge::bindings
