// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/fast_paths.h"

#include <array>

#include "capture/fast/known_memory.h"
#include "capture/fast/node_cache.h"
#include "capture/fast/sole_listener.h"
#include "capture/fast/typed_ops.h"
#include "capture/hooks/fast_switch.h"
#include "capture/hooks/op_hook.h"

namespace tidegauge::fast {
namespace {

struct Paths {
  bool is_installed = false;
  std::array<bool, kPathCount> is_enabled{true, true, true, true};
};
constinit Paths paths;

void plug(Path path, bool is_enabled) {
  switch (path) {
    case Path::TypedHandlers:
      return plug_typed_handlers(is_enabled);
    case Path::KnownMemory:
      return plug_known_memory(is_enabled);
    case Path::NodeCache:
      return plug_node_cache(is_enabled);
    case Path::SoleListener:
      return plug_sole_listener(is_enabled);
  }
}

void install() {
  paths.is_installed = true;
  for (int i = 0; i < kPathCount; ++i) plug(static_cast<Path>(i), paths.is_enabled[i]);
}

void switch_all(bool are_enabled) {
  for (int i = 0; i < kPathCount; ++i) set_enabled(static_cast<Path>(i), are_enabled);
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): throws only if memory runs out at load
[[maybe_unused]] const bool is_added = [] {
  op_hook::add_handlers(&install);
  set_fast_switch(&switch_all);
  return true;
}();

}  // namespace

void set_enabled(Path path, bool is_enabled) {
  paths.is_enabled[static_cast<size_t>(path)] = is_enabled;
  if (paths.is_installed) plug(path, is_enabled);
}

}  // namespace tidegauge::fast
