// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/fake_hook.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "capture/compat/dispatch_key.h"
#include "capture/compat/fake_mode.h"
#include "capture/compat/python_dispatch.h"
#include "capture/hooks/boxed_op.h"
#include "capture/hooks/op_stream.h"
#include "capture/hooks/op_switch.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge::fake_hook {
namespace {

using c10::OperatorHandle;
using torch::jit::Stack;

/// True if an argument is a wrapper subclass (DTensor), which calls the op again with its parts.
bool has_wrapper_argument(const OperatorHandle& op, const Stack& stack) {
  bool found = false;
  visit_arguments(op.schema(), stack, [&](const at::Tensor& tensor) {
    found |= tensor.defined() &&
             tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python) &&
             !is_fake_tensor(tensor);
  });
  return found;
}

/// Under a real process group this op returns its argument, but its fake kernel makes a new tensor.
bool waits_for_a_collective(const OperatorHandle& op) {
  return op.schema().name() == "_c10d_functional::wait_tensor";
}

bool is_tracked(const void* mode) {
  if (op_stream::has_listener_in(mode)) return true;
  const auto lock = StorageRegistry::lock();
  return StorageRegistry::get().listeners().any_started_in(mode);
}

void handle(const OperatorHandle& op, Stack* stack) {
  const void* mode = op_hook::is_on_in_this_thread() ? fake_mode::active() : nullptr;
  if (mode == nullptr || c10::impl::TorchDispatchModeTLS::stack_len() != 1 ||
      has_wrapper_argument(op, *stack)) {
    return python_dispatch::dispatch(op, stack);
  }
  const c10::impl::ExcludeDispatchKeyGuard guard(dispatch_key::kOurs);
  if (!is_tracked(mode)) return python_dispatch::dispatch(op, stack);
  if (waits_for_a_collective(op)) return;
  op_hook::watch_boxed(op.schema(), *stack, mode, [&] {
    python_dispatch::dispatch(op, stack);
    visit_results(op.schema(), *stack,
                  [mode](const at::Tensor& tensor, size_t) { register_fake(tensor, mode); });
  });
}

}  // namespace

void install() { python_dispatch::install(&handle); }

void enter_mode() {
  if (op_hook::is_on_in_this_thread()) install();
}

}  // namespace tidegauge::fake_hook
