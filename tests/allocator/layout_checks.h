// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "allocator/caching_allocator.h"

namespace tidegauge {

/// Segments in brackets with the sizes of their blocks, `*` for allocated, `?` for waiting:
/// `[2M* 18M] [512* 2096640]`.
std::string show(const Layout& layout);

/// Fails the running test unless the invariants of an allocator hold: blocks fill their segments
/// without overlap, no two free blocks are neighbours, and the figures are the sums of the blocks.
void check_invariants(const CachingAllocator& allocator);

}  // namespace tidegauge
