// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

/// Brings the ops of our dispatch keys (dispatch_key.h) to our handlers.
///
///   Fake is free                          our fallback handles every op
///   another library has kernels for Fake  our fallback; for these ops a *front kernel* of ours
///   it has a fallback for Fake            a front kernel of ours for every op
///
/// A front kernel calls our handler, or the other library's kernel for an op on that library's own
/// fake tensors and for an op in torch's own fake mode. All three give the same events. The choice
/// is made at the first use: kernels that are registered later are not noticed, and torch refuses a
/// later fallback with an error.
namespace tidegauge::op_route {

/// Call once per process; cannot be undone. `handler` is a boxed kernel for any op.
void install(const c10::KernelFunction& handler);

/// True if the op has a front kernel. Other handlers of ours must not replace it.
bool has_front_kernel(const c10::OperatorHandle& op);

/// Throws NotSupported if another library has a fallback for DeferredInit. Trackers do not need
/// this key, but simulated tensors do.
void require_carried_key();

}  // namespace tidegauge::op_route
