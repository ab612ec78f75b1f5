// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "capture/compat/at_every_op.h"
#include "capture/compat/torch_thread.h"
#include "tidegauge/export.h"

/// Switches observation on and off for each thread, and chooses what runs the observed ops.
///
/// A thread is observed while it includes our dispatch key. Scopes of torch that restore all keys
/// of the thread (inference mode) interfere in two ways. They may include the key again after the
/// last stop; then the next op switches it off. A scope that began before the start removes the key
/// when it ends; then the next call into tidegauge in that thread switches it on again. (In Python
/// the end of `torch.inference_mode` is patched to do so.)
namespace tidegauge::op_hook {

struct ThreadSwitch;
using Thread = std::shared_ptr<ThreadSwitch>;

/// Calls are counted: as many stops as starts switch it off.
Thread switch_on_in_this_thread();
/// May be called from any thread.
void stop_in(const Thread& thread);
/// The uncommon case of `restore_in_this_thread`: the key is not included.
void switch_on_again();
/// Includes the key again if a scope that began before the start has removed it.
inline void restore_in_this_thread() {
  if (!torch_thread::keys().included().has(dispatch_key::kOurs)) [[unlikely]]
    switch_on_again();
}
void switch_off_in_this_thread();
/// True if ops of this thread are observed: it includes the key, and nothing excludes it.
bool is_on_in_this_thread();

/// Call around code that must not find the key included. Nests. The last `resume` includes it
/// again.
TIDEGAUGE_API void suspend_in_this_thread();
TIDEGAUGE_API void resume_in_this_thread();

/// True if this thread had starts, and all were stopped. A thread that only inherited the key, such
/// as one of autograd's, never had any.
bool was_left_in_this_thread();

/// True if this thread need not include the key: no thread is tracked, or this one no longer is.
inline bool is_idle() {
  return at_every_op.op_starts.load(std::memory_order_relaxed) <= 0 ||
         (at_every_op.left_threads.load(std::memory_order_relaxed) > 0 &&
          was_left_in_this_thread());
}

/// Runs the ops that reach our key instead of torch's kernels; see simulate/simulator.h. The runner
/// is used while it has holders: a simulation, and each simulated storage, because ops on its
/// tensors reach our key in any thread.
using Runner = void (*)(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
void set_runner(Runner runner);
Runner current_runner();
void hold_runner();
void release_runner();
inline bool has_runner() { return at_every_op.runner_holders.load(std::memory_order_relaxed) > 0; }
/// True if the handlers of capture/fast must leave all ops to the boxed handler: there is a runner,
/// or a listener for ops (op_stream.h).
inline bool needs_boxed() { return at_every_op.detours.load(std::memory_order_relaxed) > 0; }

}  // namespace tidegauge::op_hook
