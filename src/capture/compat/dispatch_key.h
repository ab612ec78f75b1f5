// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKeySet.h>

/// The dispatch key by which ops reach us. Fake sits below Python and autograd and above the
/// kernels, and torch 2.13 registers nothing for it.
namespace tidegauge::dispatch_key {

inline constexpr c10::DispatchKey kOurs = c10::DispatchKey::Fake;
inline constexpr c10::DispatchKeySet kOnlyOurs{kOurs};
/// A handler on our key passes an op on to these.
inline constexpr c10::DispatchKeySet kBelowOurs(c10::DispatchKeySet::FULL_AFTER, kOurs);

/// True if another library has registered a fallback for the key.
inline bool is_taken() {
  return c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kOurs);
}

}  // namespace tidegauge::dispatch_key
