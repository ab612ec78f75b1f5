// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <torch/version.h>

/// The dispatch keys by which ops reach us.
///
///   DeferredInit   on simulated tensors; torch registers nothing for it. Its handler includes Fake
///                  and passes on, so that each op on them reaches us in every thread
///   autograd
///   Fake           in the threads that we track; its handlers see every op (op_route.h)
///   the kernels
///
/// Simulated tensors do not carry Fake itself: newer versions of torch treat a tensor with that key
/// as one of their own fake tensors.
namespace tidegauge::dispatch_key {

inline constexpr c10::DispatchKey kOurs = c10::DispatchKey::Fake;
inline constexpr c10::DispatchKey kCarried = c10::DispatchKey::DeferredInit;
inline constexpr c10::DispatchKeySet kOnlyOurs{kOurs};
inline constexpr c10::DispatchKeySet kOnlyCarried{kCarried};
/// Excluded around code that neither trackers nor a simulation may see.
inline constexpr c10::DispatchKeySet kBoth{kOurs, kCarried};
/// A handler on our key passes an op on to these.
inline constexpr c10::DispatchKeySet kBelowOurs(c10::DispatchKeySet::FULL_AFTER, kOurs);
inline constexpr c10::DispatchKeySet kBelowCarried(c10::DispatchKeySet::FULL_AFTER, kCarried);

/// Up to torch 2.12, Fake is above Python: an op on a Python tensor or under a Python mode reaches
/// us before Python has handled it. We pass such an op on without observing it. Our key stays on in
/// Python's handler (compat/python_dispatch.h), so we observe the ops that Python calls for it.
inline constexpr bool kIsAbovePython = kOurs > c10::DispatchKey::Python;
inline bool is_for_python(c10::DispatchKeySet keys) {
  return kIsAbovePython && keys.has(c10::DispatchKey::Python);
}

}  // namespace tidegauge::dispatch_key
