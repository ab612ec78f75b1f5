// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/module_activity.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "capture/compat/autograd_node.h"
#include "capture/compat/thread_local.h"
#include "capture/compat/torch_thread.h"

namespace tidegauge {
namespace {

uint64_t next_serial() {
  static std::atomic<uint64_t> serial{0};
  return ++serial;
}

bool needs_grad(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

/// For a call that made no node: another call made `output`.
void add_stop(CallLog& log, const CallLog::OpenCall& call, const at::Tensor& output) {
  const auto& node = output.grad_fn();
  if (node && node->thread_id() == torch_thread::id()) {
    log.add_stop(call, node->sequence_nr());
  }
}

}  // namespace

struct ModuleActivity::ThreadState {
  CallLog log;
  std::vector<std::shared_ptr<BackwardWatch>> watches;  // of the open calls
  std::vector<CallRef> within;                          // calls whose hooks are running
  int discarded_graphs = 0;                             // open recomputes whose nodes never run

  /// `sequence`: the number of the next node.
  bool wants_outputs(const CallLog::OpenCall& call, uint64_t sequence) const {
    return !watches.empty() || call.is_outermost ||
           (log.is_silent(call, sequence) && c10::GradMode::is_enabled());
  }
};

// Note [Nothing dies under the lock]
// Destroying a tensor or a node may take the GIL, and the thread that holds the GIL may wait for
// our lock. So a reference that may be the last one moves into a variable that is declared before
// the lock and therefore destroyed after it.

/// The state that the calling thread used last. It needs no search.
struct ModuleActivity::LastState {
  uint64_t serial = 0;
  ThreadState* state = nullptr;
};

/// The states of the calling thread in all ModuleActivities. They are destroyed with the thread.
struct ThreadStates {
  struct OfActivity {
    uint64_t serial;
    std::weak_ptr<ModuleActivity> activity;
    ModuleActivity::ThreadState* state;
  };

  ~ThreadStates() {
    for (const OfActivity& each : states) {
      if (const auto alive = each.activity.lock()) alive->end_thread(torch_thread::id());
    }
    ThreadLocal<ModuleActivity::LastState>::get() = {};
  }

  std::vector<OfActivity> states;
};

class ModuleActivity::WithinCall {
 public:
  WithinCall(ModuleActivity& activity, CallRef call) : activity_(activity) {
    const std::lock_guard lock(activity_.mutex_);
    activity_.this_thread().within.push_back(std::move(call));
  }
  ~WithinCall() {
    const std::lock_guard lock(activity_.mutex_);
    activity_.this_thread().within.pop_back();
  }
  WithinCall(const WithinCall&) = delete;
  WithinCall& operator=(const WithinCall&) = delete;

 private:
  ModuleActivity& activity_;
};

std::shared_ptr<ModuleActivity> ModuleActivity::create(FindOwner find_owner) {
  const auto activity = std::shared_ptr<ModuleActivity>(new ModuleActivity(std::move(find_owner)));
  activity->backward_.set_self(std::shared_ptr<BackwardWatches>(activity, &activity->backward_));
  return activity;
}

ModuleActivity::ModuleActivity(FindOwner find_owner)
    : find_owner_(std::move(find_owner)),
      serial_(next_serial()),
      backward_([this](const CallRef& call, c10::function_ref<void()> body) {
        const WithinCall within(*this, call);
        body();
      }) {}

ModuleActivity::~ModuleActivity() = default;

std::string ModuleActivity::name(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  return names_.name(module);
}

std::string ModuleActivity::short_name(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  return names_.short_name(module);
}

bool ModuleActivity::knows(ModuleId module) const {
  const std::lock_guard lock(mutex_);
  return names_.knows(module);
}

void ModuleActivity::name_root(ModuleId module, std::string_view class_name) {
  const std::lock_guard lock(mutex_);
  names_.name_root(module, class_name);
}

void ModuleActivity::rename_root(ModuleId module, std::string_view name) {
  const std::lock_guard lock(mutex_);
  names_.rename_root(module, name);
}

void ModuleActivity::name_child(ModuleId child, ModuleId parent, std::string_view attribute) {
  const std::lock_guard lock(mutex_);
  names_.name_child(child, parent, attribute);
}

void ModuleActivity::mark_dead(ModuleId module) {
  const std::lock_guard lock(mutex_);
  names_.mark_dead(module);
}

void ModuleActivity::set_backward_hooks(BackwardHooks hooks) {
  backward_.set_hooks(std::move(hooks));
}

ModuleActivity::ThreadState& ModuleActivity::this_thread() {
  LastState& last = ThreadLocal<LastState>::get();
  if (last.serial != serial_) last = {serial_, &make_thread_state()};
  return *last.state;
}

ModuleActivity::ThreadState& ModuleActivity::make_thread_state() {
  thread_local ThreadStates local;
  for (const auto& each : local.states) {
    if (each.serial == serial_) return *each.state;
  }
  std::erase_if(local.states, [](const auto& each) { return each.activity.expired(); });
  auto& state = threads_[torch_thread::id()];
  if (!state) state = std::make_unique<ThreadState>();
  local.states.push_back({serial_, weak_from_this(), state.get()});
  return *state;
}

void ModuleActivity::end_thread(uint64_t thread) {
  std::vector<std::shared_ptr<BackwardWatch>> abandoned;
  const std::lock_guard lock(mutex_);
  const auto it = threads_.find(thread);
  if (it == threads_.end()) return;
  abandoned.swap(it->second->watches);
  if (!it->second->log.keep_held_only()) threads_.erase(it);
}

ModuleActivity::Entered ModuleActivity::enter(ModuleId module, at::TensorList inputs) {
  const int task = torch::autograd::get_current_graph_task_id();
  // Before our lock, because this may take the GIL.
  const std::vector<ModuleId> base = task != -1 ? current_node_chain() : std::vector<ModuleId>();
  const std::lock_guard lock(mutex_);
  if (!names_.knows(module)) [[unlikely]]
    return {};
  ThreadState& thread = this_thread();
  const uint64_t sequence = at::sequence_number::peek();
  const bool was_open = thread.log.find_open(module).has_value();
  if (thread.log.needs_block(task)) [[unlikely]]
    open_block(thread, task, sequence, base);
  const CallLog::OpenCall call = thread.log.enter(module, sequence);
  if (has_backward_hooks() && c10::GradMode::is_enabled() && thread.discarded_graphs == 0)
      [[unlikely]] {
    thread.watches.push_back(watch_inputs(thread.log.ref(call), inputs));
  }
  return {true, was_open, call.is_outermost && names_.is_root(module), task != -1};
}

void ModuleActivity::open_block(ThreadState& thread, int task, uint64_t sequence,
                                const std::vector<ModuleId>& base) {
  sweep_dead_modules();
  thread.log.open_block(task, sequence, base);
}

std::shared_ptr<BackwardWatch> ModuleActivity::watch_inputs(const CallRef& call,
                                                            at::TensorList inputs) {
  auto watch = backward_.add(call);
  try {
    for (const at::Tensor& input : inputs) {
      if (needs_grad(input)) backward_.add_input(watch, input);
    }
  } catch (const std::exception& error) {
    failures_.note("hooking the inputs of a module", error.what());
  }
  return watch;
}

ModuleActivity::Open ModuleActivity::find_open_call(ModuleId module) {
  const std::lock_guard lock(mutex_);
  const ThreadState& thread = this_thread();
  const auto call = thread.log.find_open(module);
  return call ? Open{true, thread.wants_outputs(*call, at::sequence_number::peek())} : Open{};
}

bool ModuleActivity::leave(ModuleId module, at::TensorList outputs) {
  {
    const std::lock_guard lock(mutex_);
    ThreadState& thread = this_thread();
    const auto open = thread.log.find_open(module);
    if (!open) return false;
    const uint64_t sequence = at::sequence_number::peek();
    if (thread.watches.empty() && (outputs.empty() || !thread.wants_outputs(*open, sequence)))
        [[likely]] {
      thread.log.leave(*open, sequence);
      return true;
    }
  }
  return leave_watched(module, outputs);
}

bool ModuleActivity::leave_watched(ModuleId module, at::TensorList outputs) {
  // See Note [Nothing dies under the lock].
  std::shared_ptr<BackwardWatch> watch;
  std::vector<std::shared_ptr<BackwardWatch>> abandoned;
  std::vector<NodeRef> held;
  const std::lock_guard lock(mutex_);
  ThreadState& thread = this_thread();
  const auto open = thread.log.find_open(module);
  if (!open) return false;
  const uint64_t sequence = at::sequence_number::peek();
  const CallRef call = thread.log.ref(*open);
  auto& watches = thread.watches;
  while (!watches.empty() && watches.back()->call.block == call.block &&
         watches.back()->call.call > call.call) {
    abandoned.push_back(std::move(watches.back()));  // of an inner call that threw
    watches.pop_back();
  }
  if (!watches.empty() && watches.back()->call == call) {
    watch = std::move(watches.back());
    watches.pop_back();
  }
  try {
    const bool holds = open->is_outermost && thread.discarded_graphs == 0;
    const bool is_silent = thread.log.is_silent(*open, sequence);
    for (const at::Tensor& output : outputs) {
      if (!needs_grad(output) || output.is_leaf()) continue;
      if (is_silent) add_stop(thread.log, *open, output);
      if (watch) {
        backward_.add_output(watch, output);
      } else if (holds) {
        hold_block(output, call.block);
      }
    }
  } catch (const std::exception& error) {
    failures_.note("hooking the outputs of a module", error.what());
  }
  if (watch) held.swap(watch->held_until_left);
  thread.log.leave(*open, sequence);
  return true;
}

void ModuleActivity::begin_recompute(bool keeps_graph) {
  const int task = torch::autograd::get_current_graph_task_id();
  const std::vector<ModuleId> base = current_node_chain();
  const std::lock_guard lock(mutex_);
  ThreadState& thread = this_thread();
  thread.log.open_block(task, at::sequence_number::peek(), base,
                        keeps_graph ? BlockKind::kKeptRegion : BlockKind::kRegion);
  if (!keeps_graph) ++thread.discarded_graphs;
}

void ModuleActivity::end_recompute() {
  const std::lock_guard lock(mutex_);
  ThreadState& thread = this_thread();
  if (thread.log.close_region(at::sequence_number::peek()) == BlockKind::kRegion) {
    --thread.discarded_graphs;
  }
}

void ModuleActivity::stop() {
  std::vector<std::vector<std::shared_ptr<BackwardWatch>>> abandoned;
  const std::lock_guard lock(mutex_);
  const ThreadState* own = &this_thread();
  for (const auto& [id, thread] : threads_) {
    abandoned.push_back(std::exchange(thread->watches, {}));
    thread->discarded_graphs = 0;
    thread->log.leave_all(thread.get() == own ? at::sequence_number::peek() : 0);
  }
}

CallRef ModuleActivity::find_node_call(const torch::autograd::Node& node) {
  ModuleId owner;
  const auto* accumulator = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  // Before our lock, because this may take the GIL, and the thread that holds the GIL may wait for
  // our lock.
  if (accumulator != nullptr) {
    owner = find_owner_(accumulator->variable);
    if (!owner) return {};
  }
  const std::lock_guard lock(mutex_);
  if (!owner) return find_made(node, nullptr);
  if (const auto it = threads_.find(node.thread_id()); it != threads_.end()) {
    if (CallRef call = it->second->log.find_latest(owner)) return call;
  }
  // An accumulator that the program keeps alive may be older than the graph and made by another
  // thread.
  for (const auto& [id, thread] : threads_) {
    if (CallRef call = thread->log.find_latest(owner)) return call;
  }
  return {};
}

CallRef ModuleActivity::find_made(const torch::autograd::Node& node, SequenceRange* range) {
  const auto it = threads_.find(node.thread_id());
  return it == threads_.end() ? CallRef{} : it->second->log.find(node.sequence_nr(), range);
}

std::vector<ModuleId> ModuleActivity::current_node_chain() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return {};
  const CallRef call = find_node_call(*node);
  const std::lock_guard lock(mutex_);
  return call.chain();
}

/// The modules of all calls that are running in this thread, outermost first.
std::vector<ModuleId> ModuleActivity::running_calls() {
  std::vector<ModuleId> modules;
  std::vector<ModuleId> within;
  bool is_within = false;
  {
    const std::lock_guard lock(mutex_);
    const ThreadState& thread = this_thread();
    thread.log.append_open(modules);
    is_within = !thread.within.empty();
    if (is_within) within = thread.within.back().chain();
  }
  if (!is_within) within = current_node_chain();
  modules.insert(modules.end(), within.begin(), within.end());
  return modules;
}

std::vector<ModuleId> ModuleActivity::active() {
  std::vector<ModuleId> modules = running_calls();
  std::unordered_set<ModuleId> seen;
  std::erase_if(modules, [&](ModuleId module) { return !seen.insert(module).second; });
  return modules;
}

std::vector<ModuleId> ModuleActivity::last_active(size_t count) {
  std::vector<ModuleId> modules = running_calls();
  modules.erase(modules.begin(),
                modules.end() - static_cast<std::ptrdiff_t>(std::min(modules.size(), count)));
  return modules;
}

void ModuleActivity::move(BackwardPlace& place, const torch::autograd::Node* node,
                          std::vector<ModuleMove>& moves) {
  const std::lock_guard lock(mutex_);
  const uint64_t sequence = node != nullptr ? node->sequence_nr() : 0;
  const uint64_t maker = node != nullptr ? node->thread_id() : 0;
  place.range = {};
  // Nearly always the node is in the block of the previous node: no search, no reference counting.
  const bool stays = node != nullptr && place.call && place.maker == maker &&
                     place.call.block->is_only_home_of(sequence);
  CallRef found;
  if (stays) {
    found.call = place.call.block->call_of(sequence, place.range, place.hint);
  } else if (node != nullptr) {
    found = find_made(*node, &place.range);
  }
  const CallBlock* from = place.call.block.get();
  const CallBlock* to = stays ? from : found.block.get();
  uint32_t call = place.call.call;
  const auto go_on = [&](uint32_t next) {
    append_move(from, call, to, next, moves);
    from = to;
    call = next;
  };
  if (to != nullptr) to->visit_stops(sequence, go_on);
  go_on(found.call);
  place.maker = maker;
  place.call.call = found.call;
  if (!stays) place.call.block = std::move(found.block);
}

void ModuleActivity::run_within(ModuleId module, const std::function<void()>& body) {
  CallRef call;
  {
    const std::lock_guard lock(mutex_);
    call = this_thread().log.find_latest(module);
  }
  const WithinCall within(*this, std::move(call));
  body();
}

void ModuleActivity::sweep_dead_modules() {
  if (names_.dead_count() < sweep_at_) return;
  std::unordered_set<ModuleId> referenced;
  for (const auto& [id, thread] : threads_) {
    thread->log.visit_modules([&](ModuleId module) { referenced.insert(module); });
  }
  names_.sweep([&](ModuleId module) { return referenced.contains(module); });
  sweep_at_ = 64 + 2 * names_.dead_count();
}

}  // namespace tidegauge
