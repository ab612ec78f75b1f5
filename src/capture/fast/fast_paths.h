// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "tidegauge/export.h"

/// Fast paths: shorter code that emits the same events. The general path (hooks/, storages/) is
/// complete without them and does not depend on them. They plug themselves into it when op_hook is
/// first started. With the CMake option TIDEGAUGE_FAST_PATHS=OFF this folder is not compiled.
///
/// A test runs the scenarios with and without the fast paths and compares the event streams.
/// README.md states the invariant of each path.
namespace tidegauge::fast {

enum class Path : uint8_t {
  TypedHandlers,  ///< typed_ops.h
  KnownMemory,    ///< known_memory.h
  NodeCache,      ///< node_cache.h
  SoleListener,   ///< sole_listener.h
};
inline constexpr int kPathCount = 4;

/// Switches one path, for tests and measurements. All paths are enabled by default. No op may run
/// during the call. `enable_fast_paths` (hooks/fast_switch.h) switches all paths.
TIDEGAUGE_API void set_enabled(Path path, bool is_enabled);

}  // namespace tidegauge::fast
