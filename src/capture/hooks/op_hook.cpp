// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "capture/hooks/boxed_tensors.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_watch.h"
#include "capture/compat/torch_thread.h"
#include "capture/fast/typed_ops.h"
#include "tidegauge/errors.h"

namespace tidegauge {

constinit AtEveryOp at_every_op;

namespace op_hook {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using torch::jit::Stack;

void include(bool is_on) { c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, is_on); }

thread_local constinit int suspensions = 0;

constinit std::atomic<Runner> current_runner{nullptr};
/// Simulated ops that run in this thread, one within the other: only the outermost is looked at,
/// as a real kernel would be.
thread_local constinit int simulated_depth = 0;

void observe_simulated(Runner runner, const OperatorHandle& op, c10::DispatchKeySet keys,
                       Stack* stack) {
  if (!StorageCapture::get().has_trackers()) return runner(op, keys, stack);
  struct Depth {
    Depth() { ++simulated_depth; }
    ~Depth() { --simulated_depth; }
  };
  const Depth depth;
  const c10::FunctionSchema& schema = op.schema();
  const OpFacts facts = OpFacts::read(schema);
  OpWatch watch(facts);
  if (watch.wants_arguments()) {
    visit_arguments(schema, *stack, [&](const at::Tensor& tensor) { watch.add_argument(tensor); });
  }
  watch.run([&] { runner(op, keys, stack); });
  OpWatch::Results results(watch);
  visit_results(schema, *stack,
                [&](const at::Tensor& tensor, size_t position) { results.tell(tensor, position); });
}

/// Within a kernel of torch's on meta, or within another op, there is nothing to see.
bool is_inner() {
  return simulated_depth > 0 || c10::impl::tls_local_dispatch_key_set().included_.has_backend(
                                    c10::BackendComponent::MetaBit);
}

}  // namespace

void observe(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (has_runner()) {
    const Runner runner = current_runner.load(std::memory_order_relaxed);
    if (is_inner() || is_over()) return runner(op, keys, stack);
    return observe_simulated(runner, op, keys, stack);
  }
  if (is_over()) return op.redispatchBoxed(keys & kBelowFake, stack);
  const torch_thread::WithoutFake guard;
  const c10::FunctionSchema& schema = op.schema();
  const OpFacts facts = OpFacts::read(schema);
  OpWatch watch(facts);
  if (watch.wants_arguments()) {
    visit_arguments(schema, *stack, [&](const at::Tensor& tensor) { watch.add_argument(tensor); });
  }
  watch.run([&] { op.redispatchBoxed(keys & kBelowFake, stack); });
  OpWatch::Results results(watch);
  visit_results(schema, *stack,
                [&](const at::Tensor& tensor, size_t position) { results.tell(tensor, position); });
}

namespace {

/// Registered at the first use and never taken back: a static initializer would claim the key for
/// programs that only load us.
struct Registration {
  std::once_flag once;
  std::optional<c10::RegistrationHandleRAII> fallback;
  std::vector<c10::RegistrationHandleRAII> typed;
};

void register_handlers() {
  static auto* registration = new Registration;
  std::call_once(registration->once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(DispatchKey::Fake)) {
      throw NotSupported(
          "another library has registered a fallback for torch's dispatch key Fake, which "
          "tidegauge needs to see operators; load tidegauge without that library");
    }
    registration->fallback.emplace(dispatcher.registerFallback(
        DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&observe>(), "tidegauge"));
    registration->typed = register_typed_ops();
  });
}

}  // namespace

struct ThreadSwitch {
  const std::thread::id thread = std::this_thread::get_id();
  std::atomic<int> starts{0};
};

namespace {

const Thread& this_thread() {
  thread_local const Thread own = std::make_shared<ThreadSwitch>();
  return own;
}

}  // namespace

Thread start_in_this_thread() {
  register_handlers();
  const Thread& own = this_thread();
  ++own->starts;
  if (at_every_op.op_starts++ == 0) moment::begin_session();
  assert_in_this_thread();
  return own;
}

void stop_in(const Thread& thread) {
  --at_every_op.op_starts;
  if (--thread->starts == 0 && thread->thread == std::this_thread::get_id()) include(false);
}

void switch_on_again() {
  if (suspensions == 0 && this_thread()->starts > 0) include(true);
}

void set_runner(Runner runner) { current_runner = runner; }
void hold_runner() { at_every_op.runner_holders.fetch_add(1, std::memory_order_relaxed); }
void release_runner() { at_every_op.runner_holders.fetch_sub(1, std::memory_order_relaxed); }

void suspend_in_this_thread() { ++suspensions; }
void resume_in_this_thread() { --suspensions; }

void switch_off_in_this_thread() { include(false); }

int64_t failure_count() { return OpWatch::failure_count(); }
std::string first_failure() { return OpWatch::first_failure(); }

}  // namespace op_hook
}  // namespace tidegauge
