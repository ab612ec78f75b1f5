// SPDX-License-Identifier: BSD-3-Clause
#include "track/tracked_events.h"

#include <ctime>
#include <utility>

#include "capture/hooks/op_facts.h"
#include "capture/storages/tensor_facts.h"

namespace tidegauge {

void TrackedEvents::read_clock() {
  // Reads the same clock as std::chrono::steady_clock without a call into libstdc++.
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  log_.set_time(now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec);
}

void TrackedEvents::apply(const Event& event, const c10::TensorImpl* tensor, StackId stack,
                          Condition condition) {
  if (LiveSet::wants(event)) {
    if (log_.live().is_full()) make_room();
    log_.live().add(event.storage, event.op, tensor, stack);
  }
  log_.backlog().add(event, condition);
  if (sink_ || units_ || log_.backlog().is_full()) apply_backlog(tensor, stack);
}

void TrackedEvents::make_room() {
  if (log_.is_full()) apply_all();
  if (log_.live().is_full()) log_.live().drop_dead(ledger_);
  log_.grow();
}

void TrackedEvents::apply_backlog(const c10::TensorImpl* tensor, StackId stack) {
  follow_calls();
  if (!sink_ && !units_) return log_.backlog().apply_to(ledger_, [](const Event&) {});
  log_.backlog().apply_to(ledger_, [&](const Event& event) {
    if (sink_) record(event, tensor, stack);
    if (units_) units_->apply(event, ledger_);
  });
}

void TrackedEvents::restart_module_lists() {
  change_modules();
  apply(events::iteration_begin(origin()));
  // The backlog skips finished calls before this event: their statistics can no longer be read.
  apply_backlog();
  if (log_.live().is_half_full()) log_.live().drop_dead(ledger_);
}

bool TrackedEvents::read_has_statistics(ModuleId module) {
  follow_calls();
  return log_.backlog().has_statistics(module, ledger_);
}

uint64_t TrackedEvents::read_module_version() {
  follow_calls();
  // The peak of an open call changes with every event.
  return log_.backlog().open_calls().empty() ? module_version_
                                             : (uint64_t{1} << 63) | apply_all().now().sequence;
}

StackId TrackedEvents::birth_stack(StackId python) {
  if (stack_mode_ == StackMode::None) return {};
  if (stack_mode_ == StackMode::Python && python) return python;
  follow_calls();
  return module_stacks_.intern(log_.backlog().open_calls(), log_.thread(), *modules_);
}

void TrackedEvents::record_class(ModuleId module, std::string_view class_name) {
  if (!sink_) return;
  named_modules_.insert(module);
  sink_->name_module(module, modules_->short_name(module), class_name);
}

void TrackedEvents::record_compiled(ModuleId module, std::string_view name) {
  if (!sink_ || !modules_->name(module).empty()) return;
  named_modules_.insert(module);
  sink_->name_module(module, name, {});
}

void TrackedEvents::record_names() {
  if (!sink_) return;
  for (const ModuleId module : named_modules_) {
    const std::string name = modules_->short_name(module);
    if (!name.empty()) sink_->name_module(module, name, {});
  }
}

void TrackedEvents::record_names_in(const Event& event) {
  if (event.module && named_modules_.insert(event.module).second) {
    sink_->name_module(event.module, modules_->short_name(event.module), {});
  }
  while (named_ops_ < event.op.value) {
    ++named_ops_;
    sink_->name_op(OpId(named_ops_), op_name(OpId(named_ops_)));
  }
}

void TrackedEvents::record(const Event& event, const c10::TensorImpl* tensor, StackId stack) {
  record_names_in(event);
  if (stack && named_stacks_.insert(stack).second) sink_->name_stack(stack, stack_text(stack));
  if (!has_plain_sizes(tensor)) return sink_->record(event, nullptr, stack);
  const c10::IntArrayRef sizes = tensor->sizes();
  const TensorFacts facts{dtype_name(tensor->dtype()), {sizes.data(), sizes.size()}};
  sink_->record(event, &facts, stack);
}

ShardedUnits& TrackedEvents::start_units() {
  apply_all();  // applies the events from before the units exist
  units_ = std::make_unique<ShardedUnits>();
  return *units_;
}

void TrackedEvents::apply(const UnitEvent& event) {
  if (units_->apply(event, apply_all()) && sink_) sink_->record_unit(event);
}

std::shared_ptr<const PostMortem> TrackedEvents::apply_failure(const FailedAllocation& failed,
                                                               OpId op,
                                                               const std::string& message) {
  set_thread();
  read_clock();
  const ModuleId module = apply_all().open_calls().innermost(log_.thread());
  const Event event =
      events::allocation_failed(origin(), failed.size_bytes.value_or(0), module, op);
  ledger_.apply(event);
  const auto name = [&](ModuleId id) { return modules_->short_name(id); };
  auto made = std::make_shared<PostMortem>(
      PostMortem{.sequence = ledger_.now().sequence,
                 .time_ns = log_.time_ns(),
                 .step = ledger_.now().step,
                 .failed = failed,
                 .op = op ? op_name(op) : std::string(),
                 .module = module ? name(module) : std::string(),
                 .message = message,
                 .live = log_.live().groups(ledger_, {name, &op_name, &stack_text})});
  if (sink_) {
    record_names_in(event);
    sink_->record_failure(event, *made);
  }
  return made;
}

size_t TrackedEvents::footprint_bytes() const {
  return ledger_.footprint_bytes() + log_.backlog().footprint_bytes() +
         log_.live().footprint_bytes() + (units_ ? units_->footprint_bytes() : 0);
}

}  // namespace tidegauge
