// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge::fast {

/// Gives the ops that training steps consist of a handler with their own signature on our dispatch
/// key. The fallback (hooks/boxed_op.h) serves all other ops; for these, boxing the arguments would
/// cost more than all the rest that we do. Both report the same.
void plug_typed_handlers(bool is_enabled);

}  // namespace tidegauge::fast
