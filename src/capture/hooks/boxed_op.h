// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "capture/hooks/boxed_tensors.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_stream.h"
#include "capture/hooks/op_watch.h"

namespace tidegauge::op_hook {

/// Watches one op with boxed arguments. This function is the specification: the fast paths of
/// capture/fast have the same effect.
///
/// `fake_mode`: see OpWatch. `run` replaces the arguments on the stack by the results, and
/// `observe(watch, results)` observes them.
template <typename Run, typename Observe>
void watch_boxed(const c10::FunctionSchema& schema, torch::jit::Stack& stack, const void* fake_mode,
                 Run&& run, Observe&& observe) {
  const OpFacts facts = OpFacts::read(schema);
  OpWatch watch(facts, fake_mode);
  if (facts.needs_arguments()) {
    visit_arguments(schema, stack, [&](const at::Tensor& tensor) { watch.add_argument(tensor); });
  }
  if (op_stream::has_listeners()) [[unlikely]] {
    op_stream::Call call(schema, stack);
    watch.run(run);
    call.finish(stack, moment::birth_facts(watch.running().task), fake_mode);
  } else {
    watch.run(run);
  }
  OpWatch::Results results(watch);
  observe(watch, results);
}
template <typename Run>
void watch_boxed(const c10::FunctionSchema& schema, torch::jit::Stack& stack, const void* fake_mode,
                 Run&& run) {
  watch_boxed(schema, stack, fake_mode, run, [&](const OpWatch&, OpWatch::Results& results) {
    visit_results(schema, stack, [&](const at::Tensor& tensor, size_t position) {
      results.observe(tensor, position);
    });
  });
}

/// The handler of every op without a typed handler (capture/fast/typed_ops.h).
void handle_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

}  // namespace tidegauge::op_hook
