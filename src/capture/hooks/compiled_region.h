// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

#include "tidegauge/export.h"

namespace tidegauge {

/// Surrounds a call of compiled code. The guards of dynamo check the dispatch keys of the thread,
/// so our key must be off; otherwise dynamo compiles the model again. `hides_key` is false in a
/// simulation: there our key stays on, because the tensors of compiled code have no memory either.
class TIDEGAUGE_API CompiledRegion {
 public:
  explicit CompiledRegion(bool hides_key) : hides_key_(hides_key) {}

  /// Replaces torch's own guard, which forces the keys of the thread to these.
  void enter(c10::DispatchKeySet included, c10::DispatchKeySet excluded);
  /// For versions of torch without such a guard, which restore the keys of the thread themselves.
  void enter();
  void leave();

 private:
  const bool hides_key_;
  std::optional<c10::impl::ForceDispatchKeyGuard> guard_;
};

}  // namespace tidegauge
