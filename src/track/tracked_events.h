// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "capture/modules/birth_stacks.h"
#include "capture/modules/module_activity.h"
#include "capture/storages/capture_log.h"
#include "core/events/event_factory.h"
#include "core/events/event_sink.h"
#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"

namespace tidegauge {

/// The events of one tracker. They pass through the CaptureLog to the Ledger and, if the tracker
/// has them, to a recorder and the sharded units.
///
///   apply, append -> CaptureLog -> Ledger, EventSink, ShardedUnits
///
/// With a recorder or units, each event is applied immediately. Otherwise many events are applied
/// together before the Ledger is read. Guarded by the lock of StorageRegistry.
class TrackedEvents {
 public:
  TrackedEvents(std::shared_ptr<ModuleActivity> modules, StackMode stack_mode)
      : stack_mode_(stack_mode), modules_(std::move(modules)) {}

  const ModuleActivity& modules() const { return *modules_; }
  // The thread and time of the next events (CaptureLog).
  void set_thread() { log_.set_thread(); }
  void set_moment() {
    set_thread();
    if (sink_ || units_) read_clock();
  }
  void read_clock();
  int64_t time_ns() const { return log_.time_ns(); }
  events::Origin origin(Device device = {}) const { return log_.origin(device); }

  /// `tensor`, `stack`: of the storage, for StorageBorn and StorageClaimed.
  void apply(const Event& event, const c10::TensorImpl* tensor = nullptr, StackId stack = {},
             Condition condition = Condition::None);
  /// The same for an event without tensor and stack; `fill(event)` writes its other fields.
  template <typename Fill>
  void append(EventKind kind, Condition condition, Fill&& fill) {
    append_to_log([&] { log_.append(kind, condition, fill); });
  }
  /// Appends a ModuleEnter or ModuleExit. `size_bytes`: the inputs or outputs of a forward.
  void append_call(EventKind kind, ModuleId module, Phase phase, int64_t size_bytes = 0) {
    ++module_version_;
    append(kind, phase == Phase::Forward ? Condition::HasSize : Condition::None, [&](Event& event) {
      event.module = module;
      event.phase = phase;
      event.size_bytes = size_bytes;
    });
  }
  /// Appends a StorageFreed. No effect if the storage is unknown.
  void append_free(StorageId id, bool by_backward) {
    append_to_log([&] { log_.append_free(id, by_backward); });
  }
  /// Where capture may append births and frees; null if each event needs more than that.
  CaptureLog* log() {
    const bool only_queues = !sink_ && !units_ && stack_mode_ == StackMode::None;
    return only_queues ? &log_ : nullptr;
  }
  /// Makes room for one event in the log.
  [[gnu::noinline, gnu::cold]] void make_room();
  /// Restarts the lists of module statistics, and applies all events.
  void restart_module_lists();

  /// Applies all events and returns the Ledger.
  Ledger& apply_all() {
    if (!log_.backlog().empty()) apply_backlog();
    return ledger_;
  }
  /// Applies at least the events that may change a label, and returns the Ledger.
  const Ledger& apply_labels() { return log_.backlog().has_labels() ? apply_all() : ledger_; }
  /// The answer of the Ledger after all events, without applying them.
  bool read_has_statistics(ModuleId module);
  /// Changes whenever module statistics change.
  uint64_t read_module_version();
  void change_modules() { ++module_version_; }

  /// The stack of a storage that is born in this thread. `python`: the Python stack, if known.
  StackId birth_stack(StackId python);
  StackMode stack_mode() const { return stack_mode_; }

  // The recorder. A name is recorded before the first event that has its id.

  void set_sink(std::shared_ptr<EventSink> sink) { sink_ = std::move(sink); }
  EventSink* sink() const { return sink_.get(); }
  void record_class(ModuleId module, std::string_view class_name);
  /// For a module without a name: it is never called if compiled code does its work.
  void record_compiled(ModuleId module, std::string_view name);
  /// Records all names again. Names can change: a root module that becomes part of another module
  /// gets a longer name.
  void record_names();

  /// Null if nothing is sharded.
  ShardedUnits* units() const { return units_.get(); }
  /// The units get all events from the next one on.
  ShardedUnits& start_units();
  void apply(const UnitEvent& event);

  /// Applies and records the failed allocation, and returns its post-mortem.
  std::shared_ptr<const PostMortem> apply_failure(const FailedAllocation& failed, OpId op,
                                                  const std::string& message);

  size_t footprint_bytes() const;

 private:
  template <typename Append>
  void append_to_log(Append&& append) {
    if (!log_.has_room()) [[unlikely]]
      make_room();
    append();
    if (sink_ || units_) [[unlikely]]
      apply_backlog();
  }
  void follow_calls() {
    log_.backlog().follow([&](const Event& event, const OpenCalls& calls) {
      if (LiveSet::wants(event)) log_.live().set_module(event, calls.innermost(event.thread));
    });
  }
  void apply_backlog(const c10::TensorImpl* tensor = nullptr, StackId stack = {});
  void record(const Event& event, const c10::TensorImpl* tensor, StackId stack);
  void record_names_in(const Event& event);

  // Every event uses these.
  const StackMode stack_mode_;
  std::shared_ptr<EventSink> sink_;      // may be null
  std::unique_ptr<ShardedUnits> units_;  // may be null
  CaptureLog log_;
  uint64_t module_version_ = 0;

  const std::shared_ptr<ModuleActivity> modules_;
  Ledger ledger_;
  ModuleStacks module_stacks_;
  std::unordered_set<ModuleId> named_modules_;  // modules whose names the sink has
  uint32_t named_ops_ = 0;
  std::unordered_set<StackId> named_stacks_;
};

}  // namespace tidegauge
