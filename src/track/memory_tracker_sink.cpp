// SPDX-License-Identifier: BSD-3-Clause
// What a tracker tells its EventSink beside the events: names, and allocations that failed.
#include <utility>

#include "capture/hooks/op_facts.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_facts.h"
#include "capture/storages/tensor_storages.h"
#include "tidegauge/errors.h"
#include "track/memory_tracker.h"

namespace tidegauge {

void MemoryTracker::record_to(std::shared_ptr<EventSink> sink) {
  const auto lock = StorageRegistry::lock();
  if (ledger().now().sequence != 0) {
    throw UsageError(
        "the tracker has already observed events; set the recorder when you create the tracker");
  }
  sink_ = std::move(sink);
  state_changed();
}

void MemoryTracker::name_class(ModuleId module, std::string_view class_name) {
  const auto lock = StorageRegistry::lock();
  if (!sink_) return;
  named_modules_.insert(module);
  sink_->name_module(module, modules_->name(module), class_name);
}

void MemoryTracker::name_owned(const at::Tensor& tensor, ModuleId module, std::string_view name) {
  const auto lock = StorageRegistry::lock();
  if (!sink_) return;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage);
    if (observed.id) sink_->name_owned(observed.id, module, name);
  });
}

void MemoryTracker::count_optimizer_step(std::string_view class_name) {
  const auto lock = StorageRegistry::lock();
  if (sink_) sink_->count_optimizer_step(class_name);
}

void MemoryTracker::tell_names_in(const Event& event) {
  if (event.module && named_modules_.insert(event.module).second) {
    sink_->name_module(event.module, modules_->name(event.module), {});
  }
  while (named_ops_ < event.op.value) {
    ++named_ops_;
    sink_->name_op(OpId(named_ops_), op_name(OpId(named_ops_)));
  }
}

void MemoryTracker::tell_sink(const Event& event, const c10::TensorImpl* tensor, StackId stack) {
  tell_names_in(event);
  if (stack && named_stacks_.insert(stack).second) sink_->name_stack(stack, stack_text(stack));
  if (!has_plain_sizes(tensor)) return sink_->record(event, nullptr, stack);
  const c10::IntArrayRef sizes = tensor->sizes();
  const TensorFacts facts{dtype_name(tensor->dtype()), {sizes.data(), sizes.size()}};
  sink_->record(event, &facts, stack);
}

CaptureListener::FailureReport MemoryTracker::allocation_failed(const FailedAllocation& failed,
                                                                OpId op,
                                                                const std::string& message) {
  const bool is_first = post_mortem_ == nullptr;
  look_around();
  look_at_clock();
  const ModuleId module = ledger().open_calls().innermost(thread_);
  const Event event =
      events::allocation_failed(origin(), failed.size_bytes.value_or(0), module, op);
  ledger_.apply(event);
  const auto name = [&](ModuleId id) { return modules_->name(id); };
  auto made = std::make_shared<PostMortem>(
      PostMortem{.sequence = ledger_.now().sequence,
                 .time_ns = time_ns_,
                 .step = ledger_.now().step,
                 .failed = failed,
                 .op = op ? op_name(op) : std::string(),
                 .module = module ? name(module) : std::string(),
                 .message = message,
                 .live = live_.groups(ledger_, {name, &op_name, &stack_text})});
  if (sink_) {
    tell_names_in(event);
    sink_->record_failure(event, *made);
  }
  post_mortem_ = std::move(made);
  return {post_mortem_, is_first};
}

/// A module gets a longer name when it turns out to be part of another.
void MemoryTracker::tell_names() {
  if (!sink_) return;
  for (const ModuleId module : named_modules_) {
    const std::string name = modules_->name(module);
    if (!name.empty()) sink_->name_module(module, name, {});
  }
}

}  // namespace tidegauge
