// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "allocator/allocator_options.h"
#include "allocator/run_figures.h"

namespace tidegauge::bindings {

/// UsageError for a name that is none of "address", "counter", "private-counter".
TieRule parse_tie(const std::string& tie);
pybind11::dict to_dict(const RunFigures& figures);

/// AllocatorTrace: the recorded events of one device, followed and simulated.
void bind_allocator(pybind11::module_& m);

}  // namespace tidegauge::bindings
