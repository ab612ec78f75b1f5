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

/// A stack is a text with one frame per line, innermost first. Each text has one id for the life of
/// the process; 0 if there are too many. Thread-safe, never waits for long.
TIDEGAUGE_API StackId intern_stack(const std::string& frames);
std::string stack_text(StackId stack);

/// The running modules as a stack. With the lock of StorageRegistry held.
class ModuleStacks {
 public:
  /// None if no module runs in the thread. A module keeps its first name.
  StackId find(const OpenCalls& calls, ThreadId thread, const ModuleActivity& modules);

 private:
  std::map<std::vector<ModuleId>, StackId> known_;
  std::vector<ModuleId> open_, last_open_;
  StackId last_;
};

/// Python's stacks. The bindings set the collector, since libtidegauge does not use Python.
namespace python_stacks {

/// Reads the stack of the calling thread; 0 if it runs no Python. May take the GIL, so no caller
/// holds a lock.
using Collect = StackId (*)();
TIDEGAUGE_API void set_collector(Collect collect);

/// `collect` returns stacks while there are more starts than stops; otherwise none.
void start();
void stop();
StackId collect_now();
inline StackId collect() {
  const bool is_on = at_every_op.stack_starts.load(std::memory_order_relaxed) > 0;
  return is_on ? collect_now() : StackId();
}

}  // namespace python_stacks
}  // namespace tidegauge
