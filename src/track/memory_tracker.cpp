// SPDX-License-Identifier: BSD-3-Clause
#include "track/memory_tracker.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "capture/hooks/allocator_channel.h"
#ifdef TIDEGAUGE_TORCH_HAS_CUDA
#include "capture/hooks/cuda/cuda_trace.h"
#endif
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_hook.h"
#include "capture/storages/storage_capture.h"
#include "capture/compat/torch_thread.h"
#include "core/ledger/labeller.h"
#include "tidegauge/errors.h"

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
    : has_allocator_channel_(has_allocator_channel),
      stack_mode_(stack_mode),
      modules_(std::move(modules)),
      is_parameter_(std::move(is_parameter)) {
  const auto lock = StorageCapture::lock();
  StorageCapture::get().add(this);
  StorageCapture::get().tell_again();
}

MemoryTracker::~MemoryTracker() {
  {
    const auto lock = StorageCapture::lock();
    StorageCapture::get().remove(this);
    StorageCapture::get().tell_again();
  }
  if (wants_allocations()) AllocatorChannel::get().close(static_cast<int>(starts_.size()));
  if (stack_mode_ == StackMode::Python && is_started()) python_stacks::stop();
  for (const op_hook::Thread& thread : starts_) op_hook::stop_in(thread);
}

void MemoryTracker::start() {
#ifdef TIDEGAUGE_TORCH_HAS_CUDA
  attach_cuda_trace();
#endif
  op_hook::Thread thread = op_hook::start_in_this_thread();
  const void* fake_mode = fake_hook::active_mode();
  if (fake_mode != nullptr) fake_hook::install();
  if (has_allocator_channel_) AllocatorChannel::get().open();
  const auto lock = StorageCapture::lock();
  starts_.push_back(std::move(thread));
  StorageCapture::get().tell_again();
  if (starts_.size() == 1) {
    fake_mode_ = fake_mode;
    if (stack_mode_ == StackMode::Python) python_stacks::start();
    StorageCapture::get().poll_all();
    apply(events::peak_reset(origin()));
    was_started_ = true;
  }
}

void MemoryTracker::stop() {
  op_hook::Thread thread;
  {
    const auto lock = StorageCapture::lock();
    if (starts_.empty()) return;
    thread = std::move(starts_.back());
    starts_.pop_back();
    if (stack_mode_ == StackMode::Python && starts_.empty()) python_stacks::stop();
    run_outside();
    StorageCapture::get().tell_again();
    tell_names();
  }
  if (has_allocator_channel_) AllocatorChannel::get().close();
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
  const void* mode = StorageCapture::fake_mode_of(storage);
  return mode != nullptr && mode != fake_mode_ && was_started_;
}

void MemoryTracker::label(const at::Tensor& tensor, Role role, Since since, ModuleId owner,
                          NamedBy named_by) {
  claim_fake(tensor);
  const auto lock = StorageCapture::lock();
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const SeenStorage seen = StorageCapture::get().see(storage, /*even_empty=*/true);
    if (!seen.id) return;
    const auto known = ledger().find_storage(seen.id);
    if (!known) {
      if (named_by == NamedBy::Hook && is_of_another_mode(storage)) return;
      apply(events::storage_born(origin(seen.device), seen.id, seen.size_bytes),
            tensor.unsafeGetTensorImpl());
    } else if (known->category == category_of(role) || is_finer(known->category, role)) {
      return;
    } else if (known->category == Category::Untracked) {
      apply(events::storage_claimed(origin(), seen.id, 0), tensor.unsafeGetTensorImpl());
    }
    const bool is_named = known && known->category != Category::Untracked;
    Event label =
        events::storage_relabelled(origin(), seen.id, role, is_named ? since : Since::Birth);
    label.module = owner;
    StorageCapture::get().unmark_parameter(storage);
    apply(label);
  });
}

int64_t MemoryTracker::known_bytes(std::span<const at::Tensor> tensors) {
  const auto lock = StorageCapture::lock();
  return sum_known(tensors);
}

int64_t MemoryTracker::sum_known(std::span<const at::Tensor> tensors) {
  if (tensors.size() == 1 && is_started()) {  // nearly always, and an op has shown it to all
    c10::StorageImpl* storage = storage_of(tensors.front());
    if (storage != nullptr && StorageCapture::get().is_told(storage)) {
      return static_cast<int64_t>(storage->nbytes());
    }
  }
  int64_t sum_bytes = 0;
  counted_.clear();
  for (const at::Tensor& tensor : tensors) {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      const SeenStorage seen = StorageCapture::get().see(storage);
      if (!seen.id || !knows(seen)) return;
      if (std::find(counted_.begin(), counted_.end(), seen.id) != counted_.end()) return;
      counted_.push_back(seen.id);
      sum_bytes += seen.size_bytes;
    });
  }
  return sum_bytes;
}

void MemoryTracker::enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs) {
  moment::begin_module();
  op_hook::assert_in_this_thread();
  const auto lock = StorageCapture::lock();
  look_around();
  ++version_;
  StorageCapture::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  if (is_forward) run_outside();
  const int64_t input_bytes = is_forward ? sum_known(inputs) : 0;
  append_call(EventKind::ModuleEnter, module, phase, input_bytes);
}

void MemoryTracker::exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs) {
  moment::end_module();
  const auto lock = StorageCapture::lock();
  look_around();
  ++version_;
  StorageCapture::get().poll(64);
  const bool is_forward = phase == Phase::Forward;
  const int64_t output_bytes = is_forward ? sum_known(outputs) : 0;
  append_call(EventKind::ModuleExit, module, phase, output_bytes);
}

void MemoryTracker::set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes) {
  const auto lock = StorageCapture::lock();
  ++version_;
  apply(events::module_size(origin(), module, size_of, size_bytes));
}

void MemoryTracker::forget_module(ModuleId module) {
  const auto lock = StorageCapture::lock();
  // A graph that is still to be run after so many later modules died is not worth a longer memory.
  if (dead_.size() == kMaxDead) dead_.clear();
  dead_.insert(module);
  // Of garbage from before us, which goes at any time, a trace says nothing.
  if (ledger().knows(module)) apply(events::module_gone(origin(), module));
}

void MemoryTracker::begin_root_call(ModuleId module, bool strict, const char* tracker_name) {
  const auto lock = StorageCapture::lock();
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
  const auto lock = StorageCapture::lock();
  steps_.expect_optimizer();
}

void MemoryTracker::reset_statistics() {
  const auto lock = StorageCapture::lock();
  ++version_;
  steps_.statistics_reset();
  apply(events::statistics_reset(origin()));
}

void MemoryTracker::optimizer_step(bool begins) {
  op_hook::assert_in_this_thread();
  const auto lock = StorageCapture::lock();
  look_around();
  run_outside();
  if (!begins) {
    steps_.optimizer_ends();
  } else if (steps_.optimizer_begins()) {
    begin_step();
  }
  apply(begins ? events::optimizer_step_begin(origin()) : events::optimizer_step_end(origin()));
}

Snapshot MemoryTracker::current() {
  op_hook::assert_in_this_thread();
  const auto lock = StorageCapture::lock();
  StorageCapture::get().poll_all();
  return ledger().current();
}

Snapshot MemoryTracker::peak() {
  op_hook::assert_in_this_thread();
  const auto lock = StorageCapture::lock();
  return was_started_ ? ledger().peak() : Snapshot{};
}

std::map<Device, int64_t> MemoryTracker::foreign_bytes() {
  std::map<Device, int64_t> sums;
  const auto lock = StorageCapture::lock();
  StorageCapture::get().poll_all();
  StorageCapture::get().visit_foreign([&](StorageId id, Device device, int64_t size_bytes) {
    if (ledger().find_storage(id)) sums[device] += size_bytes;
  });
  return sums;
}

std::vector<ModuleId> MemoryTracker::modules() {
  const auto lock = StorageCapture::lock();
  return ledger().modules();
}

ModuleStats MemoryTracker::module_stats(ModuleId module) {
  const auto lock = StorageCapture::lock();
  return ledger().module_stats(module);
}

uint64_t MemoryTracker::version() {
  const auto lock = StorageCapture::lock();
  follow_calls();
  // The peak of an open call changes with every event.
  return backlog_.open_calls().empty() ? version_ : (uint64_t{1} << 63) | ledger().now().sequence;
}

std::shared_ptr<const PostMortem> MemoryTracker::post_mortem() {
  const auto lock = StorageCapture::lock();
  return post_mortem_;
}

int64_t MemoryTracker::anomaly_count() {
  const auto lock = StorageCapture::lock();
  return static_cast<int64_t>(ledger().anomalies().total());
}

std::string MemoryTracker::first_anomaly() {
  const auto lock = StorageCapture::lock();
  return std::string(ledger().anomalies().first());
}

size_t MemoryTracker::footprint_bytes() {
  const auto lock = StorageCapture::lock();
  return ledger_.footprint_bytes() + backlog_.footprint_bytes() + live_.footprint_bytes() +
         StorageCapture::get().storage_count() * 128 + (units_ ? units_->footprint_bytes() : 0);
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

void MemoryTracker::tell_seen(const SeenStorage& seen, bool was_there_before, uint8_t birth_facts,
                              OpId op, const void* fake_mode) {
  for (MemoryTracker* tracker : StorageCapture::get().trackers()) {
    if (!tracker->is_started()) continue;
    if (fake_mode != nullptr && fake_mode != tracker->fake_mode()) continue;
    if (was_there_before || !seen.is_new) {
      tracker->see_found(seen, birth_facts, op);
    } else {
      tracker->see_made(seen, birth_facts, op);
    }
  }
}

void MemoryTracker::tell_made(c10::StorageImpl* storage, const c10::TensorImpl* tensor,
                              StackId stack) {
  // Nobody has claimed it in that mode, so no tracker counts it.
  if (StorageCapture::is_unclaimed_on_meta(storage) && fake_hook::active_mode() != nullptr) return;
  SeenStorage seen = StorageCapture::get().see(storage);
  seen.tensor = tensor;
  seen.stack = stack;
  if (!seen.id) return;
  const uint8_t facts = moment::birth_facts(torch::autograd::get_current_graph_task_id());
  tell_seen(seen, /*was_there_before=*/false, facts, {}, StorageCapture::fake_mode_of(storage));
}

bool MemoryTracker::knows(const SeenStorage& seen) {
  // Fake memory is told to those of its mode only.
  const bool is_told_to_all = seen.is_told && seen.data != nullptr && is_started();
  return is_told_to_all || ledger().find_storage(seen.id);
}

void MemoryTracker::see_made(const SeenStorage& seen, uint8_t birth_facts, OpId op) {
  thread_ = running_thread();
  apply(events::storage_born(origin(seen.device), seen.id, seen.size_bytes, birth_facts, op,
                             moment::stream()),
        seen.tensor, birth_stack(seen.stack),
        has_allocator_channel_ ? Condition::IsNew : Condition::None);
  if (units_) apply_unit_births(seen.id);
}

void MemoryTracker::see_found(const SeenStorage& seen, uint8_t birth_facts, OpId op) {
  const auto known = ledger().find_category(seen.id);
  if (known && *known != Category::Untracked) return;
  thread_ = running_thread();
  apply(events::storage_born(origin(seen.device), seen.id, seen.size_bytes, birth_facts, op,
                             moment::stream()),
        seen.tensor, {}, Condition::IsNew);
  // It is older than the tracker: whatever it is, this op did not make it.
  if (!scopes_.empty()) found_in_backward_.insert(seen.id);
  apply(events::storage_relabelled(origin(), seen.id, Role::IsExternal, Since::Birth));
}

void tell_made(const at::Tensor& tensor) {
  const StackId stack = python_stacks::collect();
  const auto lock = StorageCapture::lock();
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    MemoryTracker::tell_made(storage, tensor.unsafeGetTensorImpl(), stack);
  });
}

void record_device(const DeviceTraceEntry& entry) {
  const auto lock = StorageCapture::lock();
  StorageCapture::get().record_device(entry);
}

void begin_resize(c10::StorageImpl* storage) {
  AllocatorChannel::take_over(storage);
  StorageCapture::get().begin_resize();
}

void end_resize(c10::StorageImpl* storage) { StorageCapture::get().end_resize(storage); }

bool MemoryTracker::knows_parameter(const at::Tensor& tensor) {
  StorageCapture& capture = StorageCapture::get();
  c10::StorageImpl* own = storage_of(tensor);
  const bool is_told = own != nullptr && capture.is_told(own);
  if (is_told && capture.is_told_parameter(own)) return true;
  // Not asked of all events, if none among them says what is a parameter.
  const Ledger& labelled = backlog_.has_labels() ? ledger() : ledger_;
  const auto is_parameter = [&](StorageId id) {
    const auto category = labelled.find_category(id);
    return category == Category::Parameter || category == Category::UnshardedParam ||
           category == Category::ShardedParam;
  };
  bool is_known = false;
  if (is_told) {
    is_known = is_parameter(capture.id_of_told(own));
    if (is_known) capture.mark_parameter(own);
  } else {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      is_known |= is_parameter(capture.see(storage).id);
    });
  }
  return is_known;
}

void MemoryTracker::mark_gradient(StorageId id) {
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
