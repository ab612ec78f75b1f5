// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/compiled_region.h"

#include "capture/compat/dispatch_key.h"
#include "capture/hooks/op_switch.h"

namespace tidegauge {

void CompiledRegion::enter(c10::DispatchKeySet included, c10::DispatchKeySet excluded) {
  if (hides_key_) {
    op_hook::suspend_in_this_thread();
    included = included.remove(dispatch_key::kOurs);
  }
  guard_.emplace(included, excluded);
}

void CompiledRegion::enter() {
  if (!hides_key_) return;
  op_hook::suspend_in_this_thread();
  c10::impl::tls_set_dispatch_key_included(dispatch_key::kOurs, false);
}

void CompiledRegion::leave() {
  guard_.reset();
  if (hides_key_) op_hook::resume_in_this_thread();
}

}  // namespace tidegauge
