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

/// What is kept of where memory was allocated.
enum class StackMode : uint8_t {
  None,
  Module,  ///< the modules that were running
  Python,  ///< Python's stack; in threads without Python, the modules
};

/// "none", "module" or, if `has_python`, "python"; otherwise UsageError.
TIDEGAUGE_API StackMode parse_stack_mode(std::string_view text, bool has_python);

/// A stack is a text with one frame a line, the innermost first. Each text has one id, in all of
/// the process and for its life; 0 if there are too many. Thread-safe, never waits for long.
TIDEGAUGE_API StackId intern_stack(const std::string& frames);
std::string stack_text(StackId stack);

/// Who runs, as a stack. With the lock of StorageCapture held.
class ModuleStacks {
 public:
  /// None if no module runs in the thread. A module is called what it was called at first.
  StackId find(const OpenCalls& calls, ThreadId thread, const ModuleActivity& modules);

 private:
  std::map<std::vector<ModuleId>, StackId> known_;
  std::vector<ModuleId> open_, last_open_;
  StackId last_;
};

/// Python's stacks, told by whoever knows Python: libtidegauge does not.
namespace python_stacks {

/// Of the calling thread; 0 if it runs no Python. May take the GIL, so it is never called with a
/// lock held.
using Collect = StackId (*)();
TIDEGAUGE_API void set_collector(Collect collect);

/// As long as there are more starts than stops, `collect` tells stacks; otherwise none.
void start();
void stop();
StackId collect_now();
inline StackId collect() {
  const bool is_on = at_every_op.stack_starts.load(std::memory_order_relaxed) > 0;
  return is_on ? collect_now() : StackId();
}

}  // namespace python_stacks
}  // namespace tidegauge
