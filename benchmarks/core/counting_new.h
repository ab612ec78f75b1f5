// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

/// Measures the heap of this program by replacing operator new and delete.
namespace tidegauge::heap {

size_t live_bytes();
size_t peak_bytes();
/// Resets the peak to the currently live bytes.
void restart_peak();

}  // namespace tidegauge::heap
