// SPDX-License-Identifier: BSD-3-Clause
#include "capture/op_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>
#include <optional>
#include <vector>

#include "capture/boxed_tensors.h"
#include "capture/op_watch.h"
#include "capture/typed_ops.h"
#include "tidegauge/errors.h"

namespace tidegauge::op_hook {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using torch::jit::Stack;

thread_local constinit int start_count = 0;

void observe(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::Fake);
  const c10::FunctionSchema& schema = op.schema();
  const OpFacts facts = OpFacts::read(schema);
  OpWatch watch(facts);
  if (watch.wants_arguments()) {
    for (size_t i = stack->size() - schema.arguments().size(); i < stack->size(); ++i) {
      visit_tensors((*stack)[i], [&](const at::Tensor& tensor) { watch.add_argument(tensor); });
    }
  }
  op.redispatchBoxed(keys & kBelowFake, stack);
  OpWatch::Results results(watch);
  const size_t count = schema.returns().size();
  for (size_t i = 0; i < count; ++i) {
    visit_tensors((*stack)[stack->size() - count + i],
                  [&](const at::Tensor& tensor) { results.tell(tensor, i); });
  }
}

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

void start_in_this_thread() {
  register_handlers();
  if (start_count++ == 0) c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, true);
  tell_again();
}

void stop_in_this_thread() {
  if (start_count == 0) return;
  --start_count;
  if (start_count == 0) c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, false);
  tell_again();
}

void tell_again() { OpWatch::tell_again(); }
int64_t failure_count() { return OpWatch::failure_count(); }
std::string first_failure() { return OpWatch::first_failure(); }

}  // namespace tidegauge::op_hook
