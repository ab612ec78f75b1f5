// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

/// Brings the ops of our dispatch keys (dispatch_key.h) to our handlers.
///
///   Fake has no other fallback   our fallback handles every op
///   torch or a library has one   our kernel for each op takes precedence. Ops on the library's own
///                                fake tensors, and ops in torch's fake mode, still reach its
///                                fallback
///
/// Both give the same events. The choice is made at the first use.
namespace tidegauge::op_route {

/// Call once per process; cannot be undone. `handler` is a boxed kernel for any op. Throws
/// NotSupported if another library has a fallback for DeferredInit.
void install(const c10::KernelFunction& handler);

}  // namespace tidegauge::op_route
