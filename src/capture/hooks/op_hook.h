// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>

#include "capture/hooks/at_every_op.h"
#include "capture/compat/torch_thread.h"
#include "tidegauge/export.h"

/// Sees every op of the threads it is switched on in: a boxed fallback on the dispatch key Fake,
/// which sits below Python and autograd and belongs to nobody else in torch 2.13, and typed_ops.h
/// for the common ones. It follows a backward into the engine's threads by itself. The one handler
/// of that key in the process.
///
/// The switch is a key that the thread includes. Scopes of torch's that put back all keys of the
/// thread (inference mode) may bring it back after the last stop: then the first op switches it
/// off. Those that began before the start take it away: whatever of ours is called next in that
/// thread switches it on again, in Python the end of `torch.inference_mode` itself.
namespace tidegauge::op_hook {

struct ThreadSwitch;
using Thread = std::shared_ptr<ThreadSwitch>;

/// Counted: as many stops as starts switch it off. NotSupported if the key is taken.
Thread start_in_this_thread();
/// From any thread.
void stop_in(const Thread& thread);
/// On again, if a scope that began before the start has put back the keys of the thread.
void switch_on_again();
inline void assert_in_this_thread() {
  if (!torch_thread::keys().included().has(c10::DispatchKey::Fake)) [[unlikely]]
    switch_on_again();
}

/// Around code that must not see the key. Nests.
TIDEGAUGE_API void suspend_in_this_thread();
TIDEGAUGE_API void resume_in_this_thread();

/// Runs the ops that come to the key, in place of torch's own kernels; see `simulate/simulator.h`.
/// It is asked as long as somebody holds it: a simulation, and each simulated storage, whose
/// tensors bring the key with them.
using Runner = void (*)(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
void set_runner(Runner runner);
void hold_runner();
void release_runner();
inline bool has_runner() { return at_every_op.runner_holders.load(std::memory_order_relaxed) > 0; }
/// What serves every op that has no handler of its own signature.
void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

void switch_off_in_this_thread();

/// At an op: whether nobody tracks at all.
inline bool is_idle() { return at_every_op.op_starts.load(std::memory_order_relaxed) <= 0; }
/// Likewise. Then it is to be handed on unseen.
inline bool is_over() {
  if (!is_idle()) return false;
  switch_off_in_this_thread();
  return true;
}

/// What went wrong in our own code while an op ran, and was kept from it.
TIDEGAUGE_API int64_t failure_count();
TIDEGAUGE_API std::string first_failure();

}  // namespace tidegauge::op_hook
