// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds RunRequests, verdicts, assumptions and the device catalogue.
void bind_fit(pybind11::module_& m);

}  // namespace tidegauge::bindings
