// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge::fast {

/// Registers typed handlers on our dispatch key for the most common ops of training steps. For
/// these ops, boxing the arguments would cost more than the rest of our work. The boxed fallback
/// (hooks/boxed_op.h) handles all other ops. Both send the same notifications.
void plug_typed_handlers(bool is_enabled);

}  // namespace tidegauge::fast
