// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/compiled_calls.h"

namespace tidegauge::compiled_calls {
namespace {

thread_local int depth = 0;

}  // namespace

void begin() { ++depth; }
void end() { --depth; }
bool is_running() { return depth > 0; }

}  // namespace tidegauge::compiled_calls
