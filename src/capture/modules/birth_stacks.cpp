// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/birth_stacks.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "capture/modules/module_activity.h"
#include "core/modules/open_calls.h"
#include "core/util/spin_lock.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// Never destroyed: engine threads may outlive static variables.
struct Table {
  SpinLock mutex;
  std::unordered_map<std::string, StackId> ids;
  std::deque<const std::string*> texts;  // by id - 1, keys of `ids`
};
Table& table() {
  static auto* all = new Table;
  return *all;
}

std::atomic<python_stacks::Collect> collector{nullptr};

}  // namespace

StackMode parse_stack_mode(std::string_view text, bool has_python) {
  if (text == "none") return StackMode::None;
  if (text == "module") return StackMode::Module;
  if (text == "python" && has_python) return StackMode::Python;
  throw UsageError("invalid stacks '" + std::string(text) + "' (expected " +
                   (has_python ? R"("none", "module" or "python"))" : R"("none" or "module"))"));
}

StackId intern_stack(const std::string& frames) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.ids.find(frames); found != all.ids.end()) return found->second;
  if (all.texts.size() == kMaxStacks) return {};
  const StackId id(static_cast<uint32_t>(all.texts.size() + 1));
  all.texts.push_back(&all.ids.emplace(frames, id).first->first);
  return id;
}

std::string stack_text(StackId stack) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  return stack && stack.value <= all.texts.size() ? *all.texts[stack.value - 1] : std::string();
}

StackId ModuleStacks::intern(const OpenCalls& calls, ThreadId thread,
                             const ModuleActivity& modules) {
  open_.clear();
  calls.append_to(open_, thread);
  if (open_ == last_open_) return last_;
  const auto [known, is_new] = known_.try_emplace(open_);
  if (is_new && !open_.empty()) {
    std::string frames;
    for (const ModuleId module : open_) {
      if (!frames.empty()) frames += '\n';
      frames += modules.name(module);
    }
    known->second = intern_stack(frames);
  }
  last_open_ = open_;
  return last_ = known->second;
}

namespace python_stacks {

void set_collector(Collect collect) { collector = collect; }
void start() { ++at_every_op.stack_starts; }
void stop() { --at_every_op.stack_starts; }

StackId collect_now() {
  const Collect known = collector.load(std::memory_order_relaxed);
  return known != nullptr ? known() : StackId();
}

}  // namespace python_stacks
}  // namespace tidegauge
