// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_hook.h"

#include <mutex>

#include "capture/compat/dispatch_key.h"
#include "capture/compat/op_route.h"
#include "capture/hooks/boxed_op.h"
#include "capture/hooks/fake_hook.h"

namespace tidegauge::op_hook {
namespace {

constinit RegisterHandlers further_handlers = nullptr;

/// Registers the handlers at the first start, until the process ends. A static initializer would
/// take the key away from programs that only load the library.
void register_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    op_route::install(c10::KernelFunction::makeFromBoxedFunction<&handle_boxed>());
    if (dispatch_key::kIsAbovePython) fake_hook::install();
    if (further_handlers != nullptr) further_handlers();
  });
}

}  // namespace

Thread start_in_this_thread() {
  register_handlers();
  return switch_on_in_this_thread();
}

void add_handlers(RegisterHandlers handlers) { further_handlers = handlers; }

Failures& failures() { return OpWatch::failures(); }

}  // namespace tidegauge::op_hook
