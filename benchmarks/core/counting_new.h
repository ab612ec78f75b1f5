// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

/// The heap of this program, as its own operator new and delete see it.
namespace tidegauge::heap {

size_t live_bytes();
size_t peak_bytes();
/// The peak restarts from what is live now.
void restart_peak();

}  // namespace tidegauge::heap
