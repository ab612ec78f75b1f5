// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace tidegauge {

/// A reference to an autograd node that keeps it alive. Torch's own type: an intrusive pointer, or
/// a shared one up to torch 2.12.
using NodeRef = decltype(torch::autograd::Edge::function);

}  // namespace tidegauge
