// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "capture/compat/at_every_op.h"
#include "capture/compat/torch_thread.h"
#include "tidegauge/export.h"

/// In which threads ops are seen, and what runs them.
///
/// The switch is our dispatch key, which the thread includes. Scopes of torch that restore all keys
/// of the thread (inference mode) may include it again after the last stop: then the first op
/// switches it off. Scopes that began before the start remove it: our next call in that thread
/// switches it on again; in Python that is the end of `torch.inference_mode` itself.
namespace tidegauge::op_hook {

struct ThreadSwitch;
using Thread = std::shared_ptr<ThreadSwitch>;

/// Counted: as many stops as starts switch it off.
Thread switch_on_in_this_thread();
/// From any thread.
void stop_in(const Thread& thread);
/// Includes the key again if a scope that began before the start has removed it.
void switch_on_again();
inline void assert_in_this_thread() {
  if (!torch_thread::keys().included().has(dispatch_key::kOurs)) [[unlikely]]
    switch_on_again();
}
void switch_off_in_this_thread();
/// True if ops of this thread are seen: it includes the key, and nothing excludes it.
bool is_on_in_this_thread();

/// Around code that must not see the key. Nests.
TIDEGAUGE_API void suspend_in_this_thread();
TIDEGAUGE_API void resume_in_this_thread();

/// True if no thread is tracked.
inline bool is_idle() { return at_every_op.op_starts.load(std::memory_order_relaxed) <= 0; }

/// Runs the ops that reach our key, instead of torch's own kernels; see simulate/simulator.h. It is
/// used as long as it is held: by a simulation, and by each simulated storage, because its tensors
/// bring the key with them.
using Runner = void (*)(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*);
void set_runner(Runner runner);
Runner current_runner();
void hold_runner();
void release_runner();
inline bool has_runner() { return at_every_op.runner_holders.load(std::memory_order_relaxed) > 0; }

}  // namespace tidegauge::op_hook
