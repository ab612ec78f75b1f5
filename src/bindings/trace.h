// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "core/ledger/snapshot.h"

namespace tidegauge::bindings {

void bind_trace(pybind11::module_& m);
void bind_trace_summary(pybind11::module_& m);

/// {category: bytes} in all categories there are, without those that have none.
pybind11::dict fine_split(const CategorySplit& split);
/// [(device, sequence, time_ns, step, {category: bytes}), ...]
pybind11::list fine_snapshot(const Snapshot& snapshot);

}  // namespace tidegauge::bindings
