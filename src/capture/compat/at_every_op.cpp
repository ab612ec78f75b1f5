// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/at_every_op.h"

namespace tidegauge {

constinit AtEveryOp at_every_op;

}  // namespace tidegauge
