// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#include "analyze/run.h"

namespace tidegauge::bindings {

/// The timelines as columns for the HTML report: ([columns by table of each device], names of
/// parameters, counted from 1).
pybind11::tuple timeline_columns(const Run& run, int64_t started_ns);
/// The changes of units of sharded parameters as columns.
pybind11::dict unit_lane_columns(const Run& run, int64_t started_ns);

}  // namespace tidegauge::bindings
