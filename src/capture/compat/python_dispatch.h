// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

/// Torch's dispatch of an op to Python: `__torch_dispatch__` of tensors and modes.
namespace tidegauge::python_dispatch {

/// Dispatches as torch does by itself.
void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// From now on torch calls `handler` instead. Once for the process, and for good. The GIL must be
/// held.
using Handler = void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void install(Handler handler);

}  // namespace tidegauge::python_dispatch
