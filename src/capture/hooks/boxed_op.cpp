// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/boxed_op.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/compat/python_dispatch.h"
#include "capture/compat/torch_thread.h"
#include "capture/hooks/kernel_requests.h"
#include "capture/hooks/op_switch.h"
#include "capture/hooks/simulated_depth.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge::op_hook {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

/// True within a simulated op or a meta kernel of torch, where no memory is allocated.
bool is_inner() {
  return SimulatedDepth::any() || c10::impl::tls_local_dispatch_key_set().included_.has_backend(
                                      c10::BackendComponent::MetaBit);
}

bool any_counts_allocations() {
  const auto lock = StorageRegistry::lock();
  for (const CaptureListener* listener : StorageRegistry::get().listeners().all()) {
    if (listener->is_started() && listener->state().counts_allocations) return true;
  }
  return false;
}

/// As `watch_boxed`, with the requests of the simulated kernel among the births of its results.
template <typename Run>
void watch_simulated(const c10::FunctionSchema& schema, Stack& stack, Run&& run) {
  KernelRequests& requests = KernelRequests::of_this_op();
  requests.restart(any_counts_allocations());
  watch_boxed(schema, stack, nullptr, run, [&](const OpWatch& watch, OpWatch::Results& results) {
    uint64_t observed = 0;  // bit i: result i
    const auto observe = [&](auto&& is_chosen) {
      visit_results(schema, stack, [&](const at::Tensor& tensor, size_t position) {
        if (is_chosen(position)) results.observe(tensor, position);
      });
    };
    requests.report(watch, [&](size_t chosen) {
      observe([&](size_t position) { return position == chosen; });
      observed |= uint64_t{1} << chosen;
    });
    observe([&](size_t position) { return ((observed >> position) & 1) == 0; });
  });
}

void simulate(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const Runner runner = current_runner();
  if (is_inner()) return runner(op, keys, stack);
  if (is_idle()) {
    switch_off_in_this_thread();
    return runner(op, keys, stack);
  }
  if (StorageRegistry::get().listeners().empty() && !op_stream::has_listeners()) {
    KernelRequests::of_this_op().restart(/*wanted=*/false);
    return runner(op, keys, stack);
  }
  const SimulatedDepth depth;
  watch_simulated(op.schema(), *stack, [&] { runner(op, keys, stack); });
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
