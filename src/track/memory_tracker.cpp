// SPDX-License-Identifier: BSD-3-Clause
#include "track/memory_tracker.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "capture/hooks/allocator_channel.h"
#ifdef TIDEGAUGE_TORCH_HAS_CUDA
#include "capture/compat/cuda/cuda_trace.h"
#endif
#include "capture/compat/fake_mode.h"
#include "capture/compat/torch_thread.h"
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_hook.h"
#include "capture/hooks/unseen_changes.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "core/ledger/labeller.h"
#include "tidegauge/errors.h"
#include "track/failure_printer.h"

namespace tidegauge {
namespace {

constexpr size_t kMaxDead = 4096;

// To the letter as upstream says it, after the name of the tracker.
constexpr const char* kIterationError =
    " does not support memory tracking for multiple iterative calls."
    " Either use ``reset_mod_stats`` to clear module memory stats for the previous iteration"
    " or file a github issue if you need this feature.";

/// Whether a category already says more than the role would.
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

/// What std::chrono::steady_clock says, without a call of libstdc++ on the way.
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

std::shared_ptr<MemoryTracker> MemoryTracker::create(std::shared_ptr<ModuleActivity> modules,
                                                     IsParameter is_parameter,
                                                     bool has_allocator_channel,
                                                     StackMode stack_mode) {
  return std::shared_ptr<MemoryTracker>(new MemoryTracker(
      std::move(modules), std::move(is_parameter), has_allocator_channel, stack_mode));
}

MemoryTracker::MemoryTracker(std::shared_ptr<ModuleActivity> modules, IsParameter is_parameter,
                             bool has_allocator_channel, StackMode stack_mode)
    : stack_mode_(stack_mode),
      modules_(std::move(modules)),
      is_parameter_(std::move(is_parameter)) {
  state_.counts_allocations = has_allocator_channel;
  failure_printer::install();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().listeners().add(this);
  state_changed();
}

MemoryTracker::~MemoryTracker() {
  {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().remove(this);
  }
  if (state_.counts_allocations && is_started())
    AllocatorChannel::get().close(static_cast<int>(starts_.size()));
  if (stack_mode_ == StackMode::Python && is_started()) python_stacks::stop();
  for (const op_hook::Thread& thread : starts_) op_hook::stop_in(thread);
}

void MemoryTracker::state_changed() {
  state_.is_started = !starts_.empty();
  state_.needs_only_events =
      !sink_ && !units_ && !state_.counts_allocations && stack_mode_ == StackMode::None;
  StorageRegistry::get().listeners().listener_changed();
}

std::vector<std::shared_ptr<MemoryTracker>> living_trackers() {
  std::vector<std::shared_ptr<MemoryTracker>> living;
  const auto lock = StorageRegistry::lock();
  for (CaptureListener* listener : StorageRegistry::get().listeners().all()) {
    auto tracker = std::dynamic_pointer_cast<MemoryTracker>(listener->keep_alive());
    if (tracker) living.push_back(std::move(tracker));
  }
  return living;
}

void MemoryTracker::start() {
#ifdef TIDEGAUGE_TORCH_HAS_CUDA
  attach_cuda_trace(&record_device);
#endif
  op_hook::Thread thread = op_hook::start_in_this_thread();
  const void* active_mode = fake_mode::active();
  if (active_mode != nullptr) fake_hook::install();
  if (state_.counts_allocations) AllocatorChannel::get().open();
  const auto lock = StorageRegistry::lock();
  starts_.push_back(std::move(thread));
  if (starts_.size() == 1) state_.fake_mode = active_mode;
  state_changed();
  if (starts_.size() == 1) {
    if (stack_mode_ == StackMode::Python) python_stacks::start();
    StorageRegistry::get().poll_all();
    apply(events::peak_reset(origin()));
    was_started_ = true;
  }
}

void MemoryTracker::stop() {
  op_hook::Thread thread;
  {
    const auto lock = StorageRegistry::lock();
    if (starts_.empty()) return;
    thread = std::move(starts_.back());
    starts_.pop_back();
    if (stack_mode_ == StackMode::Python && starts_.empty()) python_stacks::stop();
    runs_outside_backward();
    state_changed();
    tell_names();
  }
  if (state_.counts_allocations) AllocatorChannel::get().close();
  op_hook::stop_in(thread);
  op_hook::assert_in_this_thread();  // for another tracker
}

void MemoryTracker::look_at_clock() { time_ns_ = now_ns(); }

void MemoryTracker::apply(const Event& event, const c10::TensorImpl* tensor, StackId stack,
                          Condition condition) {
  if (LiveSet::wants(event)) {
    if (live_.is_full()) drop_dead();
    live_.add(event.storage, event.op, tensor, stack);
  }
  backlog_.add(event, condition);
  if (sink_ || units_ || backlog_.is_full()) apply_backlog(tensor, stack);
}

void MemoryTracker::apply_backlog(const c10::TensorImpl* tensor, StackId stack) {
  follow_calls();
  if (!sink_ && !units_) return backlog_.apply_to(ledger_, [](const Event&) {});
  backlog_.apply_to(ledger_, [&](const Event& event) {
    if (sink_) tell_sink(event, tensor, stack);
    if (units_) units_->apply(event, ledger_);
  });
}

StackId MemoryTracker::birth_stack(StackId python) {
  if (stack_mode_ == StackMode::None) return {};
  if (stack_mode_ == StackMode::Python && python) return python;
  follow_calls();
  return module_stacks_.find(backlog_.open_calls(), thread_, *modules_);
}

bool MemoryTracker::is_of_another_mode(c10::StorageImpl* storage) const {
  const void* mode = OwnContext::fake_mode(*storage);
  return mode != nullptr && mode != state_.fake_mode && was_started_;
}

void MemoryTracker::label(const at::Tensor& tensor, Role role, Since since, ModuleId owner,
                          NamedBy named_by) {
  register_fake(tensor);
  const auto lock = StorageRegistry::lock();
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage, /*even_empty=*/true);
    if (!observed.id) return;
    const auto known = ledger().find_storage(observed.id);
    if (!known) {
      if (named_by == NamedBy::Hook && is_of_another_mode(storage)) return;
      apply(events::storage_born(origin(observed.device), observed.id, observed.size_bytes),
            tensor.unsafeGetTensorImpl());
    } else if (known->category == category_of(role) || is_finer(known->category, role)) {
      return;
    } else if (known->category == Category::Untracked) {
      apply(events::storage_claimed(origin(), observed.id, 0), tensor.unsafeGetTensorImpl());
    }
    const bool is_named = known && known->category != Category::Untracked;
    Event label =
        events::storage_relabelled(origin(), observed.id, role, is_named ? since : Since::Birth);
    label.module = owner;
    apply(label);
  });
}

int64_t MemoryTracker::known_bytes(std::span<const at::Tensor> tensors) {
  const auto lock = StorageRegistry::lock();
  return sum_known(tensors);
}

int64_t MemoryTracker::sum_known(std::span<const at::Tensor> tensors) {
  if (tensors.size() == 1 && is_started()) {  // nearly always, and an op has shown it to all
    c10::StorageImpl* storage = storage_of(tensors.front());
    if (storage != nullptr && StorageRegistry::get().find_known(storage)) {
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

void MemoryTracker::enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs) {
  moment::begin_module();
  op_hook::assert_in_this_thread();
  const auto lock = StorageRegistry::lock();
  look_around();
  ++version_;
  StorageRegistry::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  if (is_forward) runs_outside_backward();
  const int64_t input_bytes = is_forward ? sum_known(inputs) : 0;
  append_call(EventKind::ModuleEnter, module, phase, input_bytes);
}

void MemoryTracker::exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs) {
  moment::end_module();
  const auto lock = StorageRegistry::lock();
  look_around();
  ++version_;
  StorageRegistry::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  const int64_t output_bytes = is_forward ? sum_known(outputs) : 0;
  append_call(EventKind::ModuleExit, module, phase, output_bytes);
}

void MemoryTracker::set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes) {
  const auto lock = StorageRegistry::lock();
  ++version_;
  apply(events::module_size(origin(), module, size_of, size_bytes));
}

void MemoryTracker::forget_module(ModuleId module) {
  const auto lock = StorageRegistry::lock();
  // A graph that is still to be run after so many later modules died is not worth a longer memory.
  if (dead_.size() == kMaxDead) dead_.clear();
  dead_.insert(module);
  // Of garbage from before us, which goes at any time, a trace says nothing.
  if (ledger().knows(module)) apply(events::module_gone(origin(), module));
}

void MemoryTracker::begin_root_call(ModuleId module, bool strict, const char* tracker_name) {
  const auto lock = StorageRegistry::lock();
  follow_calls();
  const bool again = backlog_.has_statistics(module, ledger_);
  if (again && strict) throw NotSupported(std::string(tracker_name) + kIterationError);
  if (steps_.root_called(again)) begin_step();
  if (!again) return;
  ++version_;
  tell_names();
  apply(events::iteration_begin(origin()));
  // Of the calls before this one nobody can read any more: the ledger passes them over.
  apply_backlog();
  if (live_.is_half_full()) live_.drop_dead(ledger_);
}

void MemoryTracker::begin_step() {
  look_around();
  apply(events::step_marker(origin()));
}

void MemoryTracker::expect_optimizer() {
  const auto lock = StorageRegistry::lock();
  steps_.expect_optimizer();
}

void MemoryTracker::reset_statistics() {
  const auto lock = StorageRegistry::lock();
  ++version_;
  steps_.statistics_reset();
  apply(events::statistics_reset(origin()));
}

void MemoryTracker::optimizer_step(bool begins) {
  op_hook::assert_in_this_thread();
  const auto lock = StorageRegistry::lock();
  look_around();
  runs_outside_backward();
  if (!begins) {
    steps_.optimizer_ends();
  } else if (steps_.optimizer_begins()) {
    begin_step();
  }
  apply(begins ? events::optimizer_step_begin(origin()) : events::optimizer_step_end(origin()));
}

Snapshot MemoryTracker::current() {
  op_hook::assert_in_this_thread();
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().poll_all();
  return ledger().current();
}

Snapshot MemoryTracker::peak() {
  op_hook::assert_in_this_thread();
  const auto lock = StorageRegistry::lock();
  return was_started_ ? ledger().peak() : Snapshot{};
}

std::map<Device, int64_t> MemoryTracker::foreign_bytes() {
  std::map<Device, int64_t> sums;
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().poll_all();
  StorageRegistry::get().weak_references().visit_foreign([&](const RegisteredStorage& each) {
    const bool counts = each.size_bytes > 0 && ledger().find_storage(each.id);
    if (counts) sums[each.device] += each.size_bytes;
  });
  return sums;
}

std::vector<ModuleId> MemoryTracker::modules() {
  const auto lock = StorageRegistry::lock();
  return ledger().modules();
}

ModuleStats MemoryTracker::module_stats(ModuleId module) {
  const auto lock = StorageRegistry::lock();
  return ledger().module_stats(module);
}

uint64_t MemoryTracker::version() {
  const auto lock = StorageRegistry::lock();
  follow_calls();
  // The peak of an open call changes with every event.
  return backlog_.open_calls().empty() ? version_ : (uint64_t{1} << 63) | ledger().now().sequence;
}

std::shared_ptr<const PostMortem> MemoryTracker::post_mortem() {
  const auto lock = StorageRegistry::lock();
  return post_mortem_;
}

int64_t MemoryTracker::anomaly_count() {
  const auto lock = StorageRegistry::lock();
  return static_cast<int64_t>(ledger().anomalies().total());
}

std::string MemoryTracker::first_anomaly() {
  const auto lock = StorageRegistry::lock();
  return std::string(ledger().anomalies().first());
}

size_t MemoryTracker::footprint_bytes() {
  const auto lock = StorageRegistry::lock();
  return ledger_.footprint_bytes() + backlog_.footprint_bytes() + live_.footprint_bytes() +
         StorageRegistry::get().storage_count() * 128 + (units_ ? units_->footprint_bytes() : 0);
}

void MemoryTracker::memory_allocated(StorageId id, Device device, int64_t size_bytes) {
  thread_ = running_thread();
  apply(events::storage_born(origin(device), id, size_bytes, kFromAllocator), nullptr,
        birth_stack({}));
}

void MemoryTracker::storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) {
  const auto known = ledger().find_storage(id);
  const auto memory = allocated ? ledger().find_storage(allocated) : std::nullopt;
  if (memory) {
    // Two became one: bytes that are the allocator's, under the name that the storage has.
    if (known) rename_since_birth(allocated, known->category);
    if (units_) share_unit(id, allocated);
    apply(events::storage_freed(origin(), allocated));
    size_bytes = memory->size_bytes;
  }
  if (known) {
    apply(events::storage_resized(origin(), id, size_bytes));
  } else if (memory) {
    memory_allocated(id, memory->device, size_bytes);
  }
}

void MemoryTracker::rename_since_birth(StorageId id, Category category) {
  if (category == Category::StepTemp) {  // a fact of births alone, no role
    return apply(events::storage_claimed(origin(), id, kInOptimizerStep));
  }
  for (uint8_t role = 0; role < kRoleCount; ++role) {
    if (category_of(static_cast<Role>(role)) != category) continue;
    return apply(events::storage_relabelled(origin(), id, static_cast<Role>(role), Since::Birth));
  }
}

bool MemoryTracker::knows(const ObservedStorage& observed) {
  // Fake memory is told to those of its mode only.
  const bool is_told_to_all = observed.is_known_to_all && observed.data != nullptr && is_started();
  return is_told_to_all || ledger().find_storage(observed.id);
}

void MemoryTracker::storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) {
  thread_ = running_thread();
  apply(events::storage_born(origin(observed.device), observed.id, observed.size_bytes, birth_facts,
                             op, moment::stream()),
        observed.tensor, birth_stack(observed.stack),
        state_.counts_allocations ? Condition::IsNew : Condition::None);
  if (units_) apply_unit_births(observed.id);
}

void MemoryTracker::storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) {
  const auto known = ledger().find_category(observed.id);
  if (known && *known != Category::Untracked) return;
  thread_ = running_thread();
  apply(events::storage_born(origin(observed.device), observed.id, observed.size_bytes, birth_facts,
                             op, moment::stream()),
        observed.tensor, {}, Condition::IsNew);
  // It is older than the tracker: whatever it is, this op did not make it.
  if (!scopes_.empty()) found_in_backward_.insert(observed.id);
  apply(events::storage_relabelled(origin(), observed.id, Role::IsExternal, Since::Birth));
}

void MemoryTracker::storage_born(StorageId id, int64_t size_bytes, Device device,
                                 const c10::TensorImpl* tensor, uint8_t birth_facts, OpId op) {
  thread_ = running_thread();
  if (live_.is_full()) drop_dead();
  live_.add(id, op, tensor, {});
  append(EventKind::StorageBorn, Condition::None, [&](Event& event) {
    event.storage = id;
    event.size_bytes = size_bytes;
    event.device = device;
    event.birth_facts = birth_facts;
    event.op = op;
    event.stream = moment::stream();
  });
}

void MemoryTracker::storage_freed(StorageId id, bool by_backward) {
  append(EventKind::StorageFreed, by_backward ? Condition::IsLetGoByBackward : Condition::IsAlive,
         [&](Event& event) { event.storage = id; });
}

bool MemoryTracker::knows_parameter(const at::Tensor& leaf) {
  StorageRegistry& registry = StorageRegistry::get();
  // The backlog matters only if an event in it changes labels.
  const Ledger& labelled = backlog_.has_labels() ? ledger() : ledger_;
  const auto is_parameter = [&](StorageId id) {
    const auto category = labelled.find_category(id);
    return category == Category::Parameter || category == Category::UnshardedParam ||
           category == Category::ShardedParam;
  };
  c10::StorageImpl* own = storage_of(leaf);
  if (const StorageId known = own != nullptr ? registry.find_known(own) : StorageId()) {
    return is_parameter(known);
  }
  bool is_known = false;
  visit_storages(leaf, [&](c10::StorageImpl* storage) {
    is_known |= is_parameter(registry.observe(storage).id);
  });
  return is_known;
}

bool MemoryTracker::learn_parameter(const at::Tensor& leaf) {
  if (!is_parameter_(leaf)) return false;
  label(leaf, Role::IsParameter, Since::Birth);
  return true;
}

void MemoryTracker::gradient_accumulated(StorageId id) {
  // What was there before the backward (the indices of a sparse gradient) is no gradient; what the
  // backward has come across was made in it in secret, by compiled code.
  const bool is_found = !found_in_backward_.empty() && found_in_backward_.contains(id);
  append(EventKind::StorageRelabelled, is_found ? Condition::IsAlive : Condition::IsTemp,
         [&](Event& event) {
           event.storage = id;
           event.role = Role::IsGradient;
           event.since = Since::Birth;
         });
}

}  // namespace tidegauge
