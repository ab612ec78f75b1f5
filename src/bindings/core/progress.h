// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <optional>

#include "trace/progress.h"

namespace tidegauge::bindings {

/// Reports the progress of work that runs without the GIL: calls `progress`, if any, and lets
/// Ctrl-C stop the work.
inline Progress notify_python(const std::optional<pybind11::function>& progress) {
  return [&progress](double share) {
    const pybind11::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
    if (progress) (*progress)(share);
  };
}

}  // namespace tidegauge::bindings
