// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "capture/compat/torch_thread.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_hook.h"
#include "capture/modules/birth_stacks.h"
#include "capture/modules/module_activity.h"
#include "capture/storages/capture_listener.h"
#include "core/events/event_factory.h"
#include "core/events/event_sink.h"
#include "core/events/step_rule.h"
#include "core/ledger/backlog.h"
#include "core/ledger/ledger.h"
#include "core/ledger/sharded_units.h"
#include "tidegauge/export.h"
#include "track/live_set.h"

namespace c10 {
struct StorageImpl;
struct TensorImpl;
}  // namespace c10
namespace torch::autograd {
struct Node;
}

namespace tidegauge {

/// Who says what a tensor is: the user, or what is noticed of modules and optimizers.
enum class NamedBy : uint8_t { User, Hook };

/// One tracker of memory: a Ledger fed with what StorageRegistry and the modules tell.
///
/// Ops are seen in the threads that `start` of some tracker was called in or that are attached
/// (tidegauge/threads.h), and in the backwards that they begin.
/// The backward of a module is told by the nodes that run: autograd runs the nodes of a thread in
/// the reverse order of their making, so a call begins with the first op of one of its nodes and
/// ends with the first op of another's. No node is hooked for it.
///
/// Thread-safe, by the lock of StorageRegistry, except for start and stop, which belong to one
/// thread.
class TIDEGAUGE_API MemoryTracker final : public CaptureListener,
                                          public std::enable_shared_from_this<MemoryTracker> {
 public:
  /// Whether a leaf is a parameter of somebody; asked without the lock, may take the GIL.
  using IsParameter = std::function<bool(const at::Tensor&)>;

  /// `has_allocator_channel`: while it is started, also memory that no tensor shows is counted, as
  /// Untracked, so that the total is that of the CPU allocator (allocator_channel.h).
  static std::shared_ptr<MemoryTracker> create(std::shared_ptr<ModuleActivity> modules,
                                               IsParameter is_parameter,
                                               bool has_allocator_channel = false,
                                               StackMode stack_mode = StackMode::None);
  ~MemoryTracker();

  /// Every event goes to `sink`, too. UsageError unless it comes before the first event.
  void record_to(std::shared_ptr<EventSink> sink);
  /// The class of a module, for the sink.
  void name_class(ModuleId module, std::string_view class_name);
  /// What is owned, for the sink: the tensor is the parameter or buffer `name` of the module, or
  /// what the program calls so.
  void name_owned(const at::Tensor& tensor, ModuleId module, std::string_view name);
  void count_optimizer_step(std::string_view class_name);
  bool is_recording() const { return sink_ != nullptr; }

  /// The peak restarts from what is there. NotSupported if something else owns the dispatch key.
  void start();
  void stop();

  /// Says what the storages of a tensor are; the last word holds. `owner`: of a parameter or
  /// buffer, for the sink. What is fake, and of another mode than the one in which the tracker was
  /// started, counts only if the user has named it.
  void label(const at::Tensor& tensor, Role role, Since since, ModuleId owner = {},
             NamedBy named_by = NamedBy::Hook);
  /// Bytes of the storages behind the tensors that this tracker knows, each storage once.
  int64_t known_bytes(std::span<const at::Tensor> tensors);

  /// The bytes behind `inputs` and `outputs` become sizes of the module.
  void enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs);
  /// The node that runs asked for a recompute: its backward has begun, though it has run no op yet.
  void begin_recompute();
  void exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs);
  void set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes);
  /// The module died: its statistics go, and its backward, if still to come, has none.
  void forget_module(ModuleId module);
  /// A root module is about to be called: if it has been before, module statistics begin anew;
  /// NotSupported if `strict`, as upstream does.
  void begin_root_call(ModuleId module, bool strict, const char* tracker_name = "MemTracker");
  void reset_statistics();
  /// There is an optimizer, though it may not have stepped yet (core/events/step_rule.h).
  void expect_optimizer();
  void optimizer_step(bool begins);
  /// The module reached a further state of its own (`kFirstMark` and later); nothing for one
  /// without statistics.
  void mark_module(ModuleId module, ModuleState state);

  // Sharded parameters, for a tracker that was told of a unit: sharded/sharded_units.h.

  void add_unit(UnitId unit, const std::string& name);
  /// Says what the storages of a tensor are to a unit.
  void label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor);
  void begin_gather(UnitId unit, GatherReason reason);
  void finish_gather(UnitId unit);
  void release(UnitId unit, bool keeps_post_forward_shard);
  void reduce(UnitId unit);
  std::vector<UnitReport> units();
  /// Of the first storage behind the tensor that is known.
  std::optional<Category> find_category(const at::Tensor& tensor);

  Snapshot current();
  /// In fine categories: an activation is a Saved Activation once a backward has let go of it.
  /// Empty before the first start.
  Snapshot peak();
  /// Bytes of memory that torch's allocators did not make, and that are part of `current`.
  std::map<Device, int64_t> foreign_bytes();
  std::vector<ModuleId> modules();
  ModuleStats module_stats(ModuleId module);
  /// Changes whenever the statistics of modules do.
  uint64_t version();
  /// Whether another thread runs a backward: gradients are not to be touched then.
  bool has_backward_elsewhere();
  /// Of the last allocation that failed; null if none has.
  std::shared_ptr<const PostMortem> post_mortem();
  int64_t anomaly_count();
  std::string first_anomaly();
  /// Memory of the ledger and the table of storages, to see that they stay flat.
  size_t footprint_bytes();

  // CaptureListener: called by capture, with the lock of StorageRegistry held.

  void storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_born(StorageId id, int64_t size_bytes, Device device, const c10::TensorImpl* tensor,
                    uint8_t birth_facts, OpId op) override;
  void storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_freed(StorageId id, bool by_backward) override;
  void storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) override;
  void memory_allocated(StorageId id, Device device, int64_t size_bytes) override;
  void node_runs(int task, const torch::autograd::Node& node) override;
  void runs_outside_backward() override {
    if (!scopes_.empty()) close_scopes_of_thread();
  }
  bool knows_parameter(const at::Tensor& leaf) override;
  bool learn_parameter(const at::Tensor& leaf) override;
  void gradient_accumulated(StorageId id) override;
  FailureReport allocation_failed(const FailedAllocation& failed, OpId op,
                                  const std::string& message) override;
  std::shared_ptr<CaptureListener> keep_alive() override { return weak_from_this().lock(); }

 private:
  /// Where one backward in one thread is.
  struct BackwardScope {
    int task;
    uint64_t thread;
    ModuleActivity::BackwardPlace place;
  };

  MemoryTracker(std::shared_ptr<ModuleActivity> modules, IsParameter is_parameter,
                bool has_allocator_channel, StackMode stack_mode);
  void rename_since_birth(StorageId id, Category category);
  int64_t sum_known(std::span<const at::Tensor> tensors);
  bool knows(const ObservedStorage& observed);
  /// Tells capture what this tracker needs from now on.
  void state_changed();
  /// Whether it is fake, and of a mode that this tracker does not count.
  bool is_of_another_mode(c10::StorageImpl* storage) const;
  void open_scope(int task, const torch::autograd::Node& node);
  void move_to(BackwardScope& scope, const torch::autograd::Node* node);
  void close_scopes_of_thread();
  void close_task(int task);
  static ThreadId running_thread() { return ThreadId(static_cast<uint16_t>(torch_thread::id())); }
  /// Before events of a module, node or step: which thread it is, and when, if somebody asks that.
  void look_around() {
    thread_ = running_thread();
    if (sink_ || units_) look_at_clock();
  }
  void look_at_clock();
  void begin_step();
  events::Origin origin(Device device = {}) const { return {time_ns_, thread_, device}; }
  void apply(const Event& event, const c10::TensorImpl* tensor = nullptr, StackId stack = {},
             Condition condition = Condition::None);
  /// Likewise for an event that says nothing of who made a storage, and that `fill` writes.
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
  /// ModuleEnter or ModuleExit. `size_bytes`: of what a forward gets or returns.
  void append_call(EventKind kind, ModuleId module, Phase phase, int64_t size_bytes = 0) {
    append(kind, phase == Phase::Forward ? Condition::HasSize : Condition::None, [&](Event& event) {
      event.module = module;
      event.phase = phase;
      event.size_bytes = size_bytes;
    });
  }
  [[gnu::noinline, gnu::cold]] void drop_dead() { live_.drop_dead(ledger()); }
  /// The backlog knows which calls are open.
  void follow_calls() {
    backlog_.follow([&](const Event& event, const OpenCalls& calls) {
      if (LiveSet::wants(event)) live_.set_module(event, calls.innermost(event.thread));
    });
  }
  void apply_backlog(const c10::TensorImpl* tensor = nullptr, StackId stack = {});
  /// With all events applied.
  Ledger& ledger() {
    if (!backlog_.empty()) apply_backlog();
    return ledger_;
  }
  /// Of a storage that is being born in this thread; `python`: if it is known.
  StackId birth_stack(StackId python);
  void tell_sink(const Event& event, const c10::TensorImpl* tensor, StackId stack);
  void tell_names_in(const Event& event);
  void tell_names();
  void apply(const UnitEvent& event);
  void change_unit(UnitId unit, UnitEventKind kind, GatherReason reason = {});
  void own_storage(UnitId unit, StorageId storage);
  void settle_units();
  void apply_unit_births(StorageId storage);
  void share_unit(StorageId owner, StorageId storage);
  void apply_fact(UnitId unit, UnitFact fact, StorageId storage);

  // What each op looks at, side by side.
  std::vector<op_hook::Thread> starts_;
  // Of the last module, node or step: reading them for each storage would cost more than the rest.
  int64_t time_ns_ = 0;
  ThreadId thread_;
  const StackMode stack_mode_;
  std::shared_ptr<EventSink> sink_;      // may be null
  std::unique_ptr<ShardedUnits> units_;  // null: nothing is sharded
  Backlog backlog_;  // holds more than one event only if nobody wants to be told of each
  LiveSet live_;
  std::vector<BackwardScope> scopes_;

  const std::shared_ptr<ModuleActivity> modules_;
  const IsParameter is_parameter_;
  Ledger ledger_;  // behind by the backlog: see `ledger()`
  ModuleStacks module_stacks_;
  std::shared_ptr<const PostMortem> post_mortem_;
  std::unordered_set<ModuleId> named_modules_;  // that the sink has names of
  uint32_t named_ops_ = 0;
  std::unordered_set<StackId> named_stacks_;
  StepRule steps_;
  std::unordered_set<ModuleId> dead_;  // whose backward may be to come
  std::vector<ModuleMove> moves_;      // scratch of move_to
  std::unordered_set<StorageId> found_in_backward_;
  std::vector<StorageId> counted_;  // scratch of sum_known
  uint64_t version_ = 0;
  bool was_started_ = false;
};

/// Each time another one, never 0.
TIDEGAUGE_API UnitId new_unit_id();

/// What is born in this thread from now on is `fact` to the unit, except in an optimizer step.
/// Nests.
TIDEGAUGE_API void begin_unit_births(UnitId unit, UnitFact fact);
TIDEGAUGE_API void end_unit_births();

/// All trackers of the process that are not being destroyed.
std::vector<std::shared_ptr<MemoryTracker>> living_trackers();

}  // namespace tidegauge
