// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <span>

#include "tidegauge/simulation.h"

/// Values of results on a stand-in device, although no kernel computes them.
///
/// Programs branch on few numbers and on many truth values and indices. So after the kernel of an
/// op in our list, the op runs again on the host, on what is known of its arguments:
///
///   integers, truth values  up to kMostIntegers elements. Unknown floating point numbers count as
///                           `unknown_number`, and the result is assumed
///   floats                  up to kMostNumbers elements, if all arguments are known
///   equal elements          at any size, as one element
///
/// The choices of routers and the sizes of results that depend on values follow the policy of
/// simulations. What an op in our list writes otherwise is unknown.
namespace tidegauge::rehearsal {

void set_policy(const SimulationPolicy& policy);
/// Replaces the CUDA kernels of the ops in our list by ones that call them.
void add_value_ops(torch::Library& library);
/// The results of a copy on a device, which torch makes without an op in our list.
void follow_copy(const at::Tensor& to, const at::Tensor& from);

}  // namespace tidegauge::rehearsal
