// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_hook.h"

#include <mutex>
#include <optional>

#include "capture/hooks/boxed_op.h"
#include "tidegauge/errors.h"

namespace tidegauge::op_hook {
namespace {

constinit RegisterHandlers further_handlers = nullptr;

/// Registers at the first use and for good: a static initializer would take the key from programs
/// that only load the library.
void register_handlers() {
  static std::once_flag once;
  static auto* fallback = new std::optional<c10::RegistrationHandleRAII>;
  std::call_once(once, [] {
    if (dispatch_key::is_taken()) {
      throw NotSupported(
          "another library has registered a fallback for torch's dispatch key Fake, which "
          "tidegauge needs to see operators; load tidegauge without that library");
    }
    fallback->emplace(c10::Dispatcher::singleton().registerFallback(
        dispatch_key::kOurs, c10::KernelFunction::makeFromBoxedFunction<&handle_boxed>(),
        "tidegauge"));
    if (further_handlers != nullptr) further_handlers();
  });
}

}  // namespace

Thread start_in_this_thread() {
  register_handlers();
  return switch_on_in_this_thread();
}

void add_handlers(RegisterHandlers handlers) { further_handlers = handlers; }

int64_t failure_count() { return OpWatch::failure_count(); }
std::string first_failure() { return OpWatch::first_failure(); }

}  // namespace tidegauge::op_hook
