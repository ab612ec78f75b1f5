// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "capture/compat/at_every_op.h"
#include "core/events/ids.h"
#include "tidegauge/export.h"

namespace tidegauge {

class ModuleActivity;
class OpenCalls;

/// Which stack is kept for each allocation.
enum class StackMode : uint8_t {
  None,
  Module,  ///< the modules that were running
  Python,  ///< Python's stack; in threads without Python, the modules
};

/// Parses "none", "module" or, if `has_python`, "python". UsageError for any other text.
TIDEGAUGE_API StackMode parse_stack_mode(std::string_view text, bool has_python);

/// How many different stacks a process keeps, with a few hundred bytes each.
inline constexpr size_t kMaxStacks = 200'000;
/// Further frames, the outermost ones, are dropped.
inline constexpr size_t kMaxStackFrames = 512;

/// A stack is a text with one frame per line, innermost first. Returns the same id for the same
/// text until the process ends, and 0 if there are too many stacks. Thread-safe, never waits for
/// long.
TIDEGAUGE_API StackId intern_stack(const std::string& frames);
std::string stack_text(StackId stack);

/// Stacks of running modules. Guarded by the lock of StorageRegistry.
class ModuleStacks {
 public:
  /// The modules that run in the thread, as a stack; none if no module runs. A module that gets
  /// another name later keeps its first name here.
  StackId intern(const OpenCalls& calls, ThreadId thread, const ModuleActivity& modules);

 private:
  std::map<std::vector<ModuleId>, StackId> known_;
  std::vector<ModuleId> open_, last_open_;
  StackId last_;
};

/// Python stacks. The bindings set the collector, because libtidegauge does not use Python.
namespace python_stacks {

/// Reads the stack of the calling thread; 0 if the thread runs no Python. May take the GIL, so
/// callers must hold none of our locks.
using Collect = StackId (*)();
TIDEGAUGE_API void set_collector(Collect collect);

/// `collect` returns stacks while there have been more starts than stops, and otherwise none.
void start();
void stop();
StackId collect_now();
inline StackId collect() {
  const bool is_on = at_every_op.stack_starts.load(std::memory_order_relaxed) > 0;
  return is_on ? collect_now() : StackId();
}

}  // namespace python_stacks
}  // namespace tidegauge
