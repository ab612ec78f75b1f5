// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "tidegauge/export.h"

/// Fast paths: shorter ways to the same events. The general path (hooks/, storages/) is complete
/// without them and knows none of them; they plug themselves into it when op_hook is first started.
/// With the CMake option TIDEGAUGE_FAST_PATHS=OFF this folder is not compiled.
///
/// A test runs the scenarios with and without them and compares the event streams. README.md states
/// the invariant of each.
namespace tidegauge::fast {

enum class Path : uint8_t {
  TypedHandlers,  ///< typed_ops.h
  KnownMemory,    ///< known_memory.h
  NodeCache,      ///< node_cache.h
  SoleListener,   ///< sole_listener.h
};
inline constexpr int kPathCount = 4;

/// For tests and measurements: all paths are enabled by default. No op may run meanwhile.
/// `enable_fast_paths` (hooks/fast_switch.h) switches all of them.
TIDEGAUGE_API void set_enabled(Path path, bool is_enabled);

}  // namespace tidegauge::fast
