// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/boxed_op.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/compat/python_dispatch.h"
#include "capture/compat/torch_thread.h"
#include "capture/hooks/op_switch.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge::op_hook {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

/// The nesting depth of simulated ops in this thread. Only the outermost op is watched, as a real
/// kernel would be.
thread_local constinit int simulated_depth = 0;

struct SimulatedDepth {
  SimulatedDepth() { ++simulated_depth; }
  ~SimulatedDepth() { --simulated_depth; }
  SimulatedDepth(const SimulatedDepth&) = delete;
  SimulatedDepth& operator=(const SimulatedDepth&) = delete;
};

/// True within a simulated op or a meta kernel of torch, where no memory is allocated.
bool is_inner() {
  return simulated_depth > 0 || c10::impl::tls_local_dispatch_key_set().included_.has_backend(
                                    c10::BackendComponent::MetaBit);
}

void simulate(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Runner runner = current_runner();
  if (is_inner()) return runner(op, keys, stack);
  if (is_idle()) {
    switch_off_in_this_thread();
    return runner(op, keys, stack);
  }
  if (StorageRegistry::get().listeners().empty()) return runner(op, keys, stack);
  const SimulatedDepth depth;
  watch_boxed(op.schema(), *stack, nullptr, [&] { runner(op, keys, stack); });
}

}  // namespace

void handle_boxed(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (dispatch_key::is_for_python(keys)) {
    const python_dispatch::PassingOn passing_on;
    return op.redispatchBoxed(keys & dispatch_key::kBelowOurs, stack);
  }
  if (has_runner()) return simulate(op, keys, stack);
  const auto run = [&] { op.redispatchBoxed(keys & dispatch_key::kBelowOurs, stack); };
  if (is_idle()) {
    switch_off_in_this_thread();
    return run();
  }
  const torch_thread::WithoutOurKey guard;
  watch_boxed(op.schema(), *stack, nullptr, run);
}

}  // namespace tidegauge::op_hook
