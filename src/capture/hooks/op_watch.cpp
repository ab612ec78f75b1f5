// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <vector>

#include "capture/hooks/allocation_failure.h"
#include "capture/hooks/allocator_channel.h"
#include "capture/modules/birth_stacks.h"
#include "track/memory_tracker.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/storage_capture.h"

namespace tidegauge {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

struct Failures {
  std::mutex mutex;
  int64_t count = 0;
  std::string first;
};
Failures& failures() {
  static auto* all = new Failures;
  return *all;
}

void fail(const char* what) {
  const std::lock_guard lock(failures().mutex);
  if (failures().count++ == 0) failures().first = what;
}

/// Ops are numbered in the order of their first birth; a schema lives as long as the process. With
/// the lock of StorageCapture held.
struct Ops {
  ska::flat_hash_map<const c10::FunctionSchema*, uint32_t> ids;
  std::vector<std::string> names;  // by id - 1; kept, for a library that was unloaded has no schema
};
Ops& ops() {
  static auto* all = new Ops;
  return *all;
}

[[gnu::noinline, gnu::cold]] OpId number_op(const OpFacts& facts) {
  Ops& all = ops();
  const auto [entry, is_new] = all.ids.emplace(facts.schema, all.names.size() + 1);
  if (is_new) {
    all.names.push_back(facts.schema->name());
    const std::string& overload = facts.schema->overload_name();
    if (!overload.empty()) all.names.back() += "." + overload;
  }
  return facts.op = OpId(entry->second);
}

OpId op_id(const OpFacts& facts) { return facts.op ? facts.op : number_op(facts); }

/// `torch.tensor` builds its tensor out of our sight and then lifts it: that is its birth.
bool makes_fresh(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema* lift =
      &c10::Dispatcher::singleton().findSchemaOrThrow("aten::lift_fresh", "").schema();
  return &schema == lift;
}

bool clones_lazily(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema* lazy_clone =
      &c10::Dispatcher::singleton().findSchemaOrThrow("aten::_lazy_clone", "").schema();
  return &schema == lazy_clone;
}

using Trackers = std::vector<std::shared_ptr<MemoryTracker>>;

[[gnu::noinline, gnu::cold]] void keep_alive(MemoryTracker* tracker, Trackers& trackers) {
  if (auto alive = tracker->weak_from_this().lock()) trackers.push_back(std::move(alive));
}

/// Those of the trackers, by position, to whom the leaf turns out to be a parameter that they have
/// not seen: used functionally, or replaced.
[[gnu::noinline, gnu::cold]] uint64_t teach_parameter(const at::Tensor& leaf,
                                                      const Trackers& unaware) {
  uint64_t aware = 0;
  for (const auto& tracker : unaware) {
    if (!tracker->is_parameter()(leaf)) continue;
    tracker->label(leaf, Role::IsParameter, Since::Birth);
    const auto lock = StorageCapture::lock();
    const auto& all = StorageCapture::get().trackers();
    const auto position = std::find(all.begin(), all.end(), tracker.get()) - all.begin();
    if (position < 64) aware |= uint64_t{1} << position;
  }
  return aware;
}

// What is news is told apart from where it is found out that there is none, which is nearly always:
// so that stays short.

/// With the lock held, under which trackers come and go.
uint64_t node_epoch() { return at_every_op.node_epoch.load(std::memory_order_relaxed); }

[[gnu::noinline]] void tell_outside(ToldNode& last) {
  const auto lock = StorageCapture::lock();
  for (MemoryTracker* tracker : StorageCapture::get().trackers()) {
    if (tracker->is_started()) tracker->run_outside();
  }
  last = {node_epoch(), {}, nullptr, 0};
}

/// Null if the node is no AccumulateGrad.
const AccumulateGrad* to_accumulator(const Node& node) {
  const bool is_one = node.sequence_nr() == UINT64_MAX && typeid(node) == typeid(AccumulateGrad);
  return is_one ? static_cast<const AccumulateGrad*>(&node) : nullptr;
}

[[gnu::noinline]] void tell_node_to_all(ToldNode& last, int task, const Node& node) {
  const AccumulateGrad* accumulator = to_accumulator(node);
  uint64_t epoch = 0;  // if there is nobody to tell, then nobody has autograd keep a BackwardEnd
  uint64_t aware = 0;
  Trackers unaware;
  {
    const auto lock = StorageCapture::lock();
    const std::vector<MemoryTracker*>& trackers = StorageCapture::get().trackers();
    for (size_t i = 0; i < trackers.size(); ++i) {
      MemoryTracker* tracker = trackers[i];
      if (!tracker->is_started()) continue;
      tracker->run_node(task, node, node.sequence_nr(), node.thread_id());
      epoch = node_epoch();
      if (accumulator == nullptr || i >= 64) continue;
      if (tracker->knows_parameter(accumulator->variable)) {
        aware |= uint64_t{1} << i;
      } else {
        keep_alive(tracker, unaware);
      }
    }
  }
  if (!unaware.empty()) aware |= teach_parameter(accumulator->variable, unaware);
  last = {epoch, {task, aware}, &node, node.sequence_nr()};
}

/// The straight way of that. False, and nothing of the node is told yet, if it does not do.
bool tell_node_to_sole(ToldNode& last, int task, const Node& node) {
  const AccumulateGrad* accumulator = to_accumulator(node);
  const auto lock = StorageCapture::lock();
  MemoryTracker* sole = StorageCapture::get().sole();
  if (sole == nullptr) return false;
  if (accumulator != nullptr && !sole->knows_parameter(accumulator->variable)) return false;
  sole->run_node(task, node, node.sequence_nr(), node.thread_id());
  last = {node_epoch(), {task, uint64_t{accumulator != nullptr}}, &node, node.sequence_nr()};
  return true;
}

/// Given that what was told last is no more, as far as is known. `node`: the one that runs.
[[gnu::noinline]] RunningNode look_around(ToldNode& last, const Node* node) {
  const int task = torch::autograd::get_current_graph_task_id();
  if (task == -1) {
    tell_outside(last);
    return {};
  }
  if (node == nullptr) return {task, 0};  // a hook of a tensor, or a sum of gradients
  if (!tell_node_to_sole(last, task, *node)) [[unlikely]]
    tell_node_to_all(last, task, *node);
  return last.running;
}

/// Tells the trackers what runs in this thread, if that is news.
[[gnu::always_inline]] inline RunningNode tell_node() {
  ToldNode& last = ToldNode::of_this_thread();
  const bool holds = last.holds();
  if (holds && last.running.task == -1 && torch::autograd::get_current_graph_task_id() == -1) {
    return {};
  }
  const auto node = torch::autograd::get_current_node();
  if (holds && node && last.node == node.get() && last.sequence == node->sequence_nr()) {
    return last.running;
  }
  return look_around(last, node.get());
}

/// An AccumulateGrad has handled the storage. With the lock held.
void mark_gradient(const RunningNode& running, StorageId storage) {
  const auto& trackers = StorageCapture::get().trackers();
  for (size_t i = 0; i < std::min<size_t>(trackers.size(), 64); ++i) {
    if (((running.gradient_trackers >> i) & 1) != 0) trackers[i]->mark_gradient(storage);
  }
}

[[gnu::noinline]] void mark_gradient_of(const RunningNode& running, c10::StorageImpl* told) {
  const auto lock = StorageCapture::lock();
  mark_gradient(running, StorageCapture::get().id_of_told(told));
}

/// A view of it is no reason to begin with it: modes that make fake tensors (DTensor's, as it works
/// out shardings) wrap what they made out of our sight.
bool is_unknown_on_meta(c10::StorageImpl& storage, const at::Tensor& tensor) {
  return storage.device_type() == c10::kMeta && !tensor.unsafeGetTensorImpl()->is_fake() &&
         !StorageCapture::is_claimed(storage._mutable_data_ptr_no_checks());
}

const void* memory_of(c10::StorageImpl* storage) {
  return storage->_mutable_data_ptr_no_checks().get();
}

}  // namespace

std::string op_name(OpId op) {
  return op.value - 1 < ops().names.size() ? ops().names[op.value - 1] : std::string();
}

OpFacts OpFacts::read(const c10::FunctionSchema& schema) {
  OpFacts facts{.schema = &schema, .returns_only_arguments = !schema.returns().empty()};
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto* alias = schema.returns()[i].alias_info();
    if (alias == nullptr) {
      facts.returns_only_arguments = false;
      facts.makes_storages = true;
      continue;
    }
    facts.returns_arguments = true;
    if (alias->isWrite() && i < 64) facts.written |= uint64_t{1} << i;
  }
  if (facts.written != 0) facts.returns_only_arguments = false;
  if (facts.returns_arguments && makes_fresh(schema)) {
    facts.returns_arguments = facts.returns_only_arguments = false;
    facts.makes_storages = true;
  }
  facts.is_lazy_clone = clones_lazily(schema);
  facts.makes_only = facts.makes_storages && !OpWatch::wants_arguments(facts);
  return facts;
}

OpWatch::OpWatch(const OpFacts& facts, const void* fake_mode) noexcept
    : facts_(facts), fake_mode_(fake_mode), pending_(StorageCapture::begin_op()) {
  try {
    running_ = tell_node();
    if (facts_.makes_storages) stack_ = python_stacks::collect();
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void OpWatch::abandon() noexcept {
  const auto lock = StorageCapture::lock();
  StorageCapture::get().end_op(pending_);
}

bool OpWatch::knows(const at::Tensor& argument) noexcept {
  try {
    StorageCapture& capture = StorageCapture::get();
    const RunningNode running = tell_node();
    c10::StorageImpl* storage = storage_of(argument);
    if (storage != nullptr && capture.is_told(storage)) [[likely]] {
      if (running.gradient_trackers != 0) mark_gradient_of(running, storage);
      return true;
    }
    return false;
  } catch (const std::exception& error) {
    fail(error.what());
    return false;
  }
}

void OpWatch::note_failure(const std::exception& error) noexcept {
  try {
    const auto failed = allocation_failure::read(error);
    if (!failed) return;
    OpId op;
    {
      const auto lock = StorageCapture::lock();
      StorageCapture::get().end_op(pending_);  // what it freed is gone
      is_over_ = true;
      op = op_id(facts_);
    }
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    allocation_failure::tell(*failed, op,
                             of_torch ? of_torch->what_without_backtrace() : error.what());
  } catch (const std::exception& own) {
    fail(own.what());
  }
}

void OpWatch::add_argument(const at::Tensor& tensor) noexcept {
  try {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      AllocatorChannel::take_over(storage);
      if (facts_.is_lazy_clone) StorageCapture::get().give_back(storage);
      arguments_.emplace_back(storage, memory_of(storage));
    });
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

OpWatch::Results::Results(OpWatch& watch) noexcept : watch_(watch) {
  StorageCapture::get().mutex().lock();
  watch_.is_over_ = true;
  StorageCapture::get().poll(4);
}

OpWatch::Results::~Results() {
  StorageCapture::get().end_op(watch_.pending_);
  StorageCapture::get().mutex().unlock();
}

void OpWatch::finish(const at::Tensor& result) noexcept {
  Results results(*this);
  try {
    if (tell_birth(result)) [[likely]]
      return;
  } catch (const std::exception& error) {
    fail(error.what());
  }
  results.tell(result, 0);
}

bool OpWatch::tell_birth(const at::Tensor& result) {
  StorageCapture& capture = StorageCapture::get();
  return capture.has_sole() && facts_.makes_only && running_.gradient_trackers == 0 &&
         capture.tell_birth(result, moment::birth_facts(running_.task), op_id(facts_));
}

void OpWatch::Results::tell(const at::Tensor& tensor, size_t position) noexcept {
  try {
    visit_storages(
        tensor, [&](c10::StorageImpl* storage) { watch_.tell_storage(storage, tensor, position); });
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

void OpWatch::tell_storage(c10::StorageImpl* storage, const at::Tensor& tensor, size_t position) {
  StorageCapture& capture = StorageCapture::get();
  if (facts_.returns_only_arguments && is_unknown_on_meta(*storage, tensor)) return;
  if (facts_.written != 0 && ((facts_.written >> position) & 1) != 0) {
    capture.note_written(pending_, storage);
  }
  SeenStorage seen = capture.see(storage);
  if (!seen.id) return;
  if (!seen.is_told) {
    seen.tensor = tensor.unsafeGetTensorImpl();
    seen.stack = stack_;
    const bool was_there_before =
        facts_.returns_only_arguments ||
        std::find(arguments_.begin(), arguments_.end(),
                  StorageMemory{storage, memory_of(storage)}) != arguments_.end();
    // Whether somebody else has seen it before does not matter: an op that found it has not made
    // it.
    const bool is_made = seen.is_new && !was_there_before;
    MemoryTracker::tell_seen(seen, was_there_before, moment::birth_facts(running_.task),
                             is_made ? op_id(facts_) : OpId{}, fake_mode_);
    capture.mark_told(seen);
  }
  if (running_.gradient_trackers != 0) mark_gradient(running_, seen.id);
}

int64_t OpWatch::failure_count() {
  const std::lock_guard lock(failures().mutex);
  return failures().count;
}

std::string OpWatch::first_failure() {
  const std::lock_guard lock(failures().mutex);
  return failures().first;
}

}  // namespace tidegauge
