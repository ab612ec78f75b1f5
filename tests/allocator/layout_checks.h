// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "allocator/caching_allocator.h"

namespace tidegauge {

/// Segments in brackets with the sizes of their blocks, `*` for allocated, `?` for waiting:
/// `[2M* 18M] [512* 2096640]`.
std::string show(const Layout& layout);

/// Fails the running test unless all that holds of any state of an allocator holds of this one:
/// blocks fill their segments without overlap, no two free neighbours, the figures are the sums.
void check_invariants(const CachingAllocator& allocator);

}  // namespace tidegauge
