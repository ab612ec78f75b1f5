// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

#include <vector>

namespace tidegauge::op_hook {

/// What a handler of the key Fake passes an op on to.
inline constexpr c10::DispatchKeySet kBelowFake(c10::DispatchKeySet::FULL_AFTER,
                                                c10::DispatchKey::Fake);

/// The ops that a training step is made of get a handler of their own signature on the key Fake:
/// the fallback, which serves all others, costs them more in boxing their arguments than all that
/// we do with them. Both see the same. As long as the handles live.
std::vector<c10::RegistrationHandleRAII> register_typed_ops();

}  // namespace tidegauge::op_hook
