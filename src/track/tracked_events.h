// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "capture/compat/torch_thread.h"
#include "capture/modules/birth_stacks.h"
#include "capture/modules/module_activity.h"
#include "core/events/event_factory.h"
#include "core/events/event_sink.h"
#include "core/ledger/backlog.h"
#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"
#include "track/live_set.h"

namespace tidegauge {

/// The events of one tracker: from capture through the Backlog to the Ledger, and on the way to a
/// recorder and the sharded units, if there are any.
///
///   apply, append -> Backlog -> Ledger, EventSink, ShardedUnits
///        `--> LiveSet (what a post-mortem lists)
///
/// With a recorder or units each event is applied at once; otherwise many in one go, before the
/// Ledger is read. Guarded by the lock of StorageRegistry.
class TrackedEvents {
 public:
  TrackedEvents(std::shared_ptr<ModuleActivity> modules, StackMode stack_mode)
      : stack_mode_(stack_mode), modules_(std::move(modules)) {}

  // Where and when the next events happen. They are read at modules, nodes and steps only: reading
  // them for each storage would cost more than all the rest.

  void set_thread() { thread_ = ThreadId(static_cast<uint16_t>(torch_thread::id())); }
  void set_moment() {
    set_thread();
    if (sink_ || units_) read_clock();
  }
  void read_clock();
  ThreadId thread() const { return thread_; }
  int64_t time_ns() const { return time_ns_; }
  events::Origin origin(Device device = {}) const { return {time_ns_, thread_, device}; }

  /// `tensor`, `stack`: of a storage that is born or gets its tensor.
  void apply(const Event& event, const c10::TensorImpl* tensor = nullptr, StackId stack = {},
             Condition condition = Condition::None);
  /// The same for an event without tensor and stack; `fill(event)` writes it in place.
  template <typename Fill>
  void append(EventKind kind, Condition condition, Fill&& fill) {
    backlog_.add(kind, condition, [&](Event& event) {
      event.time_ns = time_ns_;
      event.thread = thread_;
      fill(event);
    });
    if (sink_ || units_ || backlog_.is_full()) [[unlikely]]
      apply_backlog();
  }
  /// ModuleEnter or ModuleExit. `size_bytes`: what a forward gets or returns.
  void append_call(EventKind kind, ModuleId module, Phase phase, int64_t size_bytes = 0) {
    ++module_version_;
    append(kind, phase == Phase::Forward ? Condition::HasSize : Condition::None, [&](Event& event) {
      event.module = module;
      event.phase = phase;
      event.size_bytes = size_bytes;
    });
  }
  /// StorageBorn, without recorder and stacks.
  template <typename Fill>
  void append_birth(StorageId storage, OpId op, const c10::TensorImpl* tensor, Fill&& fill) {
    if (live_.is_full()) drop_dead();
    live_.add(storage, op, tensor, {});
    append(EventKind::StorageBorn, Condition::None, fill);
  }
  /// Nothing of what happened before can be read any more: applies all events.
  void restart_module_lists();

  /// With all events applied.
  Ledger& ledger() {
    if (!backlog_.empty()) apply_backlog();
    return ledger_;
  }
  /// With all events applied that may change a label.
  const Ledger& labelled_ledger() { return backlog_.has_labels() ? ledger() : ledger_; }
  /// What the Ledger would answer, without applying the events.
  bool has_statistics(ModuleId module);
  /// Changes whenever the statistics of modules do.
  uint64_t module_version();
  void change_modules() { ++module_version_; }

  /// For a storage that is born in this thread. `python`: its Python stack, if known.
  StackId birth_stack(StackId python);
  StackMode stack_mode() const { return stack_mode_; }

  // The recorder. Each name is recorded before the first event with its id.

  void set_sink(std::shared_ptr<EventSink> sink) { sink_ = std::move(sink); }
  EventSink* sink() const { return sink_.get(); }
  void record_class(ModuleId module, std::string_view class_name);
  /// A module gets a longer name when it turns out to be part of another: records all names again.
  void record_names();

  /// Null: nothing is sharded.
  ShardedUnits* units() const { return units_.get(); }
  /// The units start with the next event.
  ShardedUnits& start_units();
  void apply(const UnitEvent& event);

  /// Applies and records the failed allocation.
  std::shared_ptr<const PostMortem> apply_failure(const FailedAllocation& failed, OpId op,
                                                  const std::string& message);

  size_t footprint_bytes() const;

 private:
  [[gnu::noinline, gnu::cold]] void drop_dead() { live_.drop_dead(ledger()); }
  void follow_calls() {
    backlog_.follow([&](const Event& event, const OpenCalls& calls) {
      if (LiveSet::wants(event)) live_.set_module(event, calls.innermost(event.thread));
    });
  }
  void apply_backlog(const c10::TensorImpl* tensor = nullptr, StackId stack = {});
  void record(const Event& event, const c10::TensorImpl* tensor, StackId stack);
  void record_names_in(const Event& event);

  // Every event uses these.
  int64_t time_ns_ = 0;
  ThreadId thread_;
  const StackMode stack_mode_;
  std::shared_ptr<EventSink> sink_;      // may be null
  std::unique_ptr<ShardedUnits> units_;  // may be null
  Backlog backlog_;
  LiveSet live_;
  uint64_t module_version_ = 0;

  const std::shared_ptr<ModuleActivity> modules_;
  Ledger ledger_;
  ModuleStacks module_stacks_;
  std::unordered_set<ModuleId> named_modules_;  // the sink has their names
  uint32_t named_ops_ = 0;
  std::unordered_set<StackId> named_stacks_;
};

}  // namespace tidegauge
