// SPDX-License-Identifier: BSD-3-Clause
#include "track/mem_engine.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "capture/compat/autograd_node.h"
#include "capture/compat/fake_mode.h"
#include "capture/compat/torch_thread.h"
#include "capture/hooks/allocator_channel.h"
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_hook.h"
#include "capture/hooks/op_stream.h"
#include "capture/hooks/running_node.h"
#include "capture/hooks/unseen_changes.h"
#include "capture/storages/known_storage.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "core/ledger/labeller.h"
#include "tidegauge/errors.h"
#include "track/failure_printer.h"
#include "track/unit_births.h"

namespace tidegauge {
namespace {

// The words of upstream's message after the name of the tracker.
constexpr const char* kIterationError =
    " does not support memory tracking for multiple iterative calls."
    " Either use ``reset_mod_stats`` to clear module memory stats for the previous iteration"
    " or file a github issue if you need this feature.";

/// True if the category is more specific than the category of the role.
bool is_finer(Category category, Role role) {
  switch (category) {
    case Category::ShardedParam:
    case Category::UnshardedParam:
    case Category::PostForwardShard:
      return role == Role::IsParameter;
    case Category::ShardedGrad:
    case Category::UnshardedGrad:
      return role == Role::IsGradient;
    case Category::ReduceScatter:
    case Category::AllReduce:
      return role == Role::IsGradient || role == Role::IsShardedGrad;
    default:
      return false;
  }
}

}  // namespace

std::shared_ptr<MemEngine> MemEngine::create(std::shared_ptr<ModuleActivity> modules,
                                             IsParameter is_parameter, bool has_allocator_channel,
                                             StackMode stack_mode) {
  return std::shared_ptr<MemEngine>(new MemEngine(std::move(modules), std::move(is_parameter),
                                                  has_allocator_channel, stack_mode));
}

MemEngine::MemEngine(std::shared_ptr<ModuleActivity> modules, IsParameter is_parameter,
                     bool has_allocator_channel, StackMode stack_mode)
    : failures_(modules),
      events_(modules, stack_mode),
      backwards_(events_, std::move(modules)),
      is_parameter_(std::move(is_parameter)) {
  state_.counts_allocations = has_allocator_channel;
  failure_printer::install();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().listeners().add(this);
  update_state();
}

MemEngine::~MemEngine() {
  {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().remove(this);
  }
  if (state_.counts_allocations && is_started())
    AllocatorChannel::get().close(static_cast<int>(starts_.size()));
  if (events_.stack_mode() == StackMode::Python && is_started()) python_stacks::stop();
  for (const op_hook::Thread& thread : starts_) op_hook::stop_in(thread);
}

void MemEngine::update_state() {
  state_.is_started = !starts_.empty();
  state_.log = state_.counts_allocations ? nullptr : events_.log();
  StorageRegistry::get().listeners().listener_changed();
}

std::vector<std::shared_ptr<MemEngine>> MemEngine::living() {
  std::vector<std::shared_ptr<MemEngine>> living;
  const auto lock = StorageRegistry::lock();
  for (CaptureListener* listener : StorageRegistry::get().listeners().all()) {
    auto tracker = std::dynamic_pointer_cast<MemEngine>(listener->keep_alive());
    if (tracker) living.push_back(std::move(tracker));
  }
  return living;
}

void MemEngine::start() {
  watch_devices();
  op_hook::Thread thread = op_hook::start_in_this_thread();
  const void* active_mode = fake_mode::active();
  if (active_mode != nullptr) fake_hook::install();
  if (state_.counts_allocations) AllocatorChannel::get().open();
  const auto lock = StorageRegistry::lock();
  starts_.push_back(std::move(thread));
  if (starts_.size() == 1) state_.fake_mode = active_mode;
  update_state();
  if (starts_.size() == 1) {
    if (events_.stack_mode() == StackMode::Python) python_stacks::start();
    StorageRegistry::get().poll_all();
    events_.apply(events::peak_reset(events_.origin()));
    was_started_ = true;
  }
}

void MemEngine::restart_peak() {
  const auto lock = StorageRegistry::lock();
  events_.apply(events::peak_reset(events_.origin()));
}

void MemEngine::stop() {
  op_hook::Thread thread;
  {
    const auto lock = StorageRegistry::lock();
    if (starts_.empty()) return;
    thread = std::move(starts_.back());
    starts_.pop_back();
    if (events_.stack_mode() == StackMode::Python && starts_.empty()) python_stacks::stop();
    thread_left_backward();
    update_state();
    events_.record_names();
    if (EventSink* sink = events_.sink()) failures_.record(*sink);
  }
  if (state_.counts_allocations) AllocatorChannel::get().close();
  op_hook::stop_in(thread);
  op_hook::restore_in_this_thread();  // another tracker may still be started in this thread
}

bool MemEngine::is_of_another_mode(c10::StorageImpl* storage) const {
  const void* mode = OwnContext::fake_mode(*storage);
  return mode != nullptr && mode != state_.fake_mode && was_started_;
}

void MemEngine::label(const at::Tensor& tensor, Role role, Since since, ModuleId owner,
                      LabelledBy labelled_by) {
  register_fake(tensor);
  const auto lock = StorageRegistry::lock();
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage, /*even_empty=*/true);
    if (!observed.id) return;
    const auto known = events_.apply_all().find_storage(observed.id);
    if (!known) {
      if (labelled_by == LabelledBy::Hook && is_of_another_mode(storage)) return;
      events_.apply(
          events::storage_born(events_.origin(observed.device), observed.id, observed.size_bytes),
          tensor.unsafeGetTensorImpl());
    } else if (known->category == category_of(role) || is_finer(known->category, role)) {
      return;
    } else if (known->category == Category::Untracked) {
      events_.apply(events::storage_claimed(events_.origin(), observed.id, 0),
                    tensor.unsafeGetTensorImpl());
    }
    const bool is_named = known && known->category != Category::Untracked;
    Event label = events::storage_relabelled(events_.origin(), observed.id, role,
                                             is_named ? since : Since::Birth);
    label.module = owner;
    events_.apply(label);
  });
}

void MemEngine::visit_known(std::span<const at::Tensor> tensors, VisitKnown visit) {
  const auto lock = StorageRegistry::lock();
  for (const at::Tensor& tensor : tensors) {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      const ObservedStorage observed = StorageRegistry::get().observe(storage);
      if (observed.id && knows(observed)) visit(observed.id, observed.size_bytes);
    });
  }
}

int64_t MemEngine::observe_bytes_locked(std::span<const at::Tensor> tensors) {
  if (tensors.size() == 1 && is_started()) {  // nearly always, and every listener knows the storage
    c10::StorageImpl* storage = storage_of(tensors.front());
    if (storage != nullptr && find_known(storage)) {
      return static_cast<int64_t>(storage->nbytes());
    }
  }
  int64_t sum_bytes = 0;
  counted_.clear();
  for (const at::Tensor& tensor : tensors) {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      const ObservedStorage observed = StorageRegistry::get().observe(storage);
      if (!observed.id || !knows(observed)) return;
      if (std::find(counted_.begin(), counted_.end(), observed.id) != counted_.end()) return;
      counted_.push_back(observed.id);
      sum_bytes += observed.size_bytes;
    });
  }
  return sum_bytes;
}

void MemEngine::enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs) {
  moment::begin_module();
  op_hook::restore_in_this_thread();
  const auto lock = StorageRegistry::lock();
  events_.set_moment();
  StorageRegistry::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  if (is_forward) thread_left_backward();
  const int64_t input_bytes = is_forward ? observe_bytes_locked(inputs) : 0;
  op_stream::move_module(events_.modules(), module, true);
  events_.append_call(EventKind::ModuleEnter, module, phase, input_bytes);
}

void MemEngine::exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs) {
  moment::end_module();
  const auto lock = StorageRegistry::lock();
  events_.set_moment();
  StorageRegistry::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  const int64_t output_bytes = is_forward ? observe_bytes_locked(outputs) : 0;
  op_stream::move_module(events_.modules(), module, false);
  events_.append_call(EventKind::ModuleExit, module, phase, output_bytes);
}

void MemEngine::set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes) {
  const auto lock = StorageRegistry::lock();
  events_.change_modules();
  events_.apply(events::module_size(events_.origin(), module, size_of, size_bytes));
}

void MemEngine::forget_module(ModuleId module) {
  const auto lock = StorageRegistry::lock();
  backwards_.forget_module(module);
  // Modules that the tracker never observed have no events, so their end is not recorded either.
  if (events_.apply_all().knows(module))
    events_.apply(events::module_gone(events_.origin(), module));
}

void MemEngine::begin_root_call(ModuleId module, bool strict, const char* tracker_name) {
  const auto lock = StorageRegistry::lock();
  const bool again = events_.read_has_statistics(module);
  if (again && strict) throw NotSupported(std::string(tracker_name) + kIterationError);
  if (steps_.note_root_call(again)) begin_step();
  if (!again) return;
  events_.record_names();
  events_.restart_module_lists();
}

void MemEngine::begin_step() {
  if (EventSink* sink = events_.sink()) failures_.record(*sink);
  events_.set_moment();
  events_.apply(events::step_marker(events_.origin()));
}

void MemEngine::expect_optimizer() {
  const auto lock = StorageRegistry::lock();
  steps_.expect_optimizer();
}

void MemEngine::reset_statistics() {
  const auto lock = StorageRegistry::lock();
  events_.change_modules();
  steps_.note_statistics_reset();
  events_.apply(events::statistics_reset(events_.origin()));
}

void MemEngine::optimizer_step(bool begins) {
  op_hook::restore_in_this_thread();
  const auto lock = StorageRegistry::lock();
  events_.set_moment();
  thread_left_backward();
  if (!begins) {
    steps_.note_optimizer_end();
  } else if (steps_.note_optimizer_begin()) {
    begin_step();
  }
  events_.apply(begins ? events::optimizer_step_begin(events_.origin())
                       : events::optimizer_step_end(events_.origin()));
}

void MemEngine::memory_allocated(StorageId id, Device device, int64_t size_bytes) {
  events_.set_thread();
  events_.apply(events::storage_born(events_.origin(device), id, size_bytes, kFromAllocator),
                nullptr, events_.birth_stack({}));
}

void MemEngine::storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) {
  const auto known = events_.apply_all().find_storage(id);
  const auto memory = allocated ? events_.apply_all().find_storage(allocated) : std::nullopt;
  if (memory) {
    // The allocator has already reported the new memory. Its bytes get the storage's label, and
    // then the storage's id.
    if (known) relabel_since_birth(allocated, known->category);
    const UnitId unit = events_.units() != nullptr ? events_.units()->unit_of(id) : UnitId();
    if (unit) own_storage(unit, allocated);
    events_.apply(events::storage_freed(events_.origin(), allocated));
    size_bytes = memory->size_bytes;
  }
  if (known) {
    events_.apply(events::storage_resized(events_.origin(), id, size_bytes));
  } else if (memory) {
    memory_allocated(id, memory->device, size_bytes);
  }
}

void MemEngine::relabel_since_birth(StorageId id, Category category) {
  if (category == Category::StepTemp) {  // it has no role: only a birth fact gives this category
    return events_.apply(events::storage_claimed(events_.origin(), id, kInOptimizerStep));
  }
  for (uint8_t role = 0; role < kRoleCount; ++role) {
    if (category_of(static_cast<Role>(role)) != category) continue;
    return events_.apply(
        events::storage_relabelled(events_.origin(), id, static_cast<Role>(role), Since::Birth));
  }
}

bool MemEngine::knows(const ObservedStorage& observed) {
  // A fake storage is reported only to the trackers of its mode.
  const bool is_known_here = observed.is_known_to_all && observed.data != nullptr && is_started();
  return is_known_here || events_.apply_all().find_storage(observed.id);
}

void MemEngine::storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) {
  events_.set_thread();
  events_.apply(events::storage_born(events_.origin(observed.device), observed.id,
                                     observed.size_bytes, birth_facts, op, moment::stream()),
                observed.tensor, events_.birth_stack(observed.stack),
                state_.counts_allocations ? Condition::IsNew : Condition::None);
  if (events_.units() == nullptr) return;
  const UnitBirth birth = current_unit_birth();
  if (birth.unit) apply_fact(birth.unit, birth.fact, observed.id);
}

void MemEngine::storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) {
  const auto known = events_.apply_all().find_category(observed.id);
  if (known && *known != Category::Untracked) return;
  events_.set_thread();
  events_.apply(events::storage_born(events_.origin(observed.device), observed.id,
                                     observed.size_bytes, birth_facts, op, moment::stream()),
                observed.tensor, {}, Condition::IsNew);
  // The storage is older than the tracker, so this op did not make it.
  backwards_.add_found(observed.id);
  events_.apply(
      events::storage_relabelled(events_.origin(), observed.id, Role::IsExternal, Since::Birth));
}

void MemEngine::storage_freed(StorageId id, bool by_backward) {
  events_.append_free(id, by_backward);
}

void MemEngine::make_room() { events_.make_room(); }

bool MemEngine::knows_parameter(const at::Tensor& leaf) {
  StorageRegistry& registry = StorageRegistry::get();
  const Ledger& labelled = events_.apply_labels();
  const auto is_parameter = [&](StorageId id) {
    const auto category = labelled.find_category(id);
    return category == Category::Parameter || category == Category::UnshardedParam ||
           category == Category::ShardedParam;
  };
  c10::StorageImpl* own = storage_of(leaf);
  if (const StorageId known = own != nullptr ? find_known(own) : StorageId()) {
    return is_parameter(known);
  }
  bool is_known = false;
  visit_storages(
      leaf, [&](c10::StorageImpl* storage) { is_known |= is_parameter(registry.find(*storage)); });
  return is_known;
}

bool MemEngine::learn_parameter(const at::Tensor& leaf) {
  if (!is_parameter_(leaf)) return false;
  label(leaf, Role::IsParameter, Since::Birth);
  return true;
}

void MemEngine::gradient_accumulated(StorageId id) {
  // A storage that existed before the backward (the indices of a sparse gradient) is not a
  // gradient. A storage that was first observed in the backward is one: compiled code, which
  // capture does not observe, allocated it there.
  const bool is_found = backwards_.has_found(id);
  events_.append(EventKind::StorageRelabelled, is_found ? Condition::IsAlive : Condition::IsTemp,
                 [&](Event& event) {
                   event.storage = id;
                   event.role = Role::IsGradient;
                   event.since = Since::Birth;
                 });
}

void MemEngine::begin_recompute() {
  const auto node = torch::autograd::get_current_node();
  if (!node) return;
  const auto lock = StorageRegistry::lock();
  node_runs(torch::autograd::get_current_graph_task_id(), *node);
}

void MemEngine::node_runs(int task, const torch::autograd::Node& node) {
  if (!backwards_.move_to(task, node)) begin_backward(task, node);
}

void MemEngine::begin_backward(int task, const torch::autograd::Node& node) {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this(), task, end = BackwardEnd()] {
        forget_running_nodes();  // now, instead of when the last copy of `end` is destroyed
        if (const auto alive = weak.lock()) {
          const auto lock = StorageRegistry::lock();
          alive->backwards_.close(task);
        }
      });
  backwards_.open(task, node);
}

void MemEngine::thread_left_backward() {
  if (!backwards_.empty()) backwards_.close_in_thread();
}

CaptureListener::FailureReport MemEngine::allocation_failed(const FailedAllocation& failed, OpId op,
                                                            const std::string& message) {
  const bool is_first = post_mortem_ == nullptr;
  post_mortem_ = events_.apply_failure(failed, op, message);
  return {post_mortem_, is_first};
}

void MemEngine::record_to(std::shared_ptr<EventSink> sink) {
  const auto lock = StorageRegistry::lock();
  if (events_.apply_all().now().sequence != 0) {
    throw UsageError(
        "the tracker has already observed events; set the recorder when you create the tracker");
  }
  sink->attach();
  events_.set_sink(std::move(sink));
  update_state();
}

void MemEngine::name_class(ModuleId module, std::string_view class_name) {
  const auto lock = StorageRegistry::lock();
  events_.record_class(module, class_name);
}

void MemEngine::name_compiled(ModuleId module, std::string_view name) {
  const auto lock = StorageRegistry::lock();
  events_.record_compiled(module, name);
}

void MemEngine::name_owned(const at::Tensor& tensor, ModuleId module, std::string_view name) {
  const auto lock = StorageRegistry::lock();
  EventSink* sink = events_.sink();
  if (sink == nullptr) return;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage);
    if (observed.id) sink->name_owned(observed.id, module, name);
  });
}

void MemEngine::count_optimizer_step(std::string_view class_name) {
  const auto lock = StorageRegistry::lock();
  if (EventSink* sink = events_.sink()) sink->count_optimizer_step(class_name);
}

}  // namespace tidegauge
