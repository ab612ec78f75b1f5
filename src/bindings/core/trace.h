// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include "core/ledger/snapshot.h"

namespace tidegauge::bindings {

/// Reader and EventSource, Ledger, PostMortem, and Run.
void bind_trace(pybind11::module_& m);
/// Run alone: the answers about the events of an EventSource.
void bind_trace_summary(pybind11::module_& m);

/// [(device, sequence, time_ns, step, {category: bytes}), ...]
pybind11::list fine_snapshot(const Snapshot& snapshot);

}  // namespace tidegauge::bindings
