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
#include <vector>

#include "capture/hooks/op_hook.h"
#include "capture/storages/capture_listener.h"
#include "core/events/step_rule.h"
#include "tidegauge/export.h"
#include "track/backward_scopes.h"
#include "track/tracked_events.h"
#include "track/tracker_failures.h"

namespace tidegauge {

/// The source of a label: the user, or a hook on modules and optimizers.
enum class LabelledBy : uint8_t { User, Hook };

/// The engine of every memory tracker. It turns notifications from capture, modules and optimizers
/// into events (TrackedEvents) and answers queries from the Ledger. It observes the ops of threads
/// that started a tracker or are attached (tidegauge/threads.h), and of their backwards.
/// Thread-safe by the lock of StorageRegistry, except `start` and `stop`.
class TIDEGAUGE_API MemEngine final : public CaptureListener,
                                      public std::enable_shared_from_this<MemEngine> {
 public:
  /// True if a module has the leaf as a parameter. Called without the lock; may take the GIL.
  using IsParameter = std::function<bool(const at::Tensor&)>;
  using VisitKnown = c10::function_ref<void(StorageId storage, int64_t size_bytes)>;

  static std::shared_ptr<MemEngine> create(std::shared_ptr<ModuleActivity> modules,
                                           IsParameter is_parameter,
                                           bool has_allocator_channel = false,
                                           StackMode stack_mode = StackMode::None);
  ~MemEngine();
  /// All trackers of the process that are not being destroyed.
  static std::vector<std::shared_ptr<MemEngine>> living();

  void start();  ///< restarts the peak
  void stop();
  void restart_peak();
  /// Labels the storages of a tensor. `owner`: the module of a parameter or buffer. A fake tensor
  /// counts if it belongs to the tracker's FakeTensorMode or if the user labels it.
  void label(const at::Tensor& tensor, Role role, Since since, ModuleId owner = {},
             LabelledBy labelled_by = LabelledBy::Hook);
  /// Calls `visit(storage, size_bytes)` for each storage behind the tensors that it knows.
  void visit_known(std::span<const at::Tensor> tensors, VisitKnown visit);
  std::optional<Category> read_category(const at::Tensor& tensor);

  /// The bytes behind `inputs` and `outputs` are recorded as sizes of the module.
  void enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs);
  void exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs);
  /// Call when the running node starts a recompute: its backward begins now, before its first op.
  void begin_recompute();
  void set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes);
  /// Adds a snapshot for a state from `kFirstMark` on. No effect if the module has no statistics.
  void mark_module(ModuleId module, ModuleState state);
  /// Call when the module is destroyed. A later backward of the module has no statistics.
  void forget_module(ModuleId module);
  /// Call before a root module is called. If the module was called before, module statistics
  /// restart; with `strict`, throws NotSupported instead.
  void begin_root_call(ModuleId module, bool strict, const char* tracker_name = "MemTracker");
  void reset_statistics();
  /// Call when an optimizer exists, even if it has not stepped yet (core/events/step_rule.h).
  void expect_optimizer();
  void optimizer_step(bool begins);
  void record_to(std::shared_ptr<EventSink> sink);  ///< before the first event; see `attach`
  bool is_recording() const { return events_.sink() != nullptr; }
  // No effect without a sink. `name_owned` without a module: the user's name for a tensor.
  void name_class(ModuleId module, std::string_view class_name);
  void name_compiled(ModuleId module, std::string_view name);
  void name_owned(const at::Tensor& tensor, ModuleId module, std::string_view name);
  void count_optimizer_step(std::string_view class_name);

  // Sharded parameters (core/ledger/sharded_units.h). No effect before the first `add_unit`.
  void add_unit(UnitId unit, const std::string& name);
  void label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor);
  void begin_gather(UnitId unit, GatherReason reason);
  void finish_gather(UnitId unit);
  /// Call for a unit that was gathered before the tracker started, for an unknown reason.
  void resume_gather(UnitId unit, bool is_finished);
  void release(UnitId unit, bool keeps_post_forward_shard);
  void reduce(UnitId unit);
  std::vector<UnitReport> units();
  Snapshot current();
  /// Empty before the first start. An activation that a backward freed is a Saved Activation.
  Snapshot peak();
  std::map<Device, int64_t> foreign_bytes();  ///< live bytes that torch did not allocate
  std::vector<ModuleId> modules();
  ModuleStats module_stats(ModuleId module);
  uint64_t version();             ///< changes whenever module statistics change
  bool has_backward_elsewhere();  ///< in another thread; then gradients must not be read
  std::shared_ptr<const PostMortem> post_mortem();  ///< of the last failed allocation; may be null
  TrackerFailures& failures() { return failures_; }
  int64_t anomaly_count();
  std::string first_anomaly();
  size_t footprint_bytes();  ///< memory used by the ledger and the table of storages
  // CaptureListener
  void storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_freed(StorageId id, bool by_backward) override;
  void storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) override;
  void make_room() override;
  void memory_allocated(StorageId id, Device device, int64_t size_bytes) override;
  void node_runs(int task, const torch::autograd::Node& node) override;
  void thread_left_backward() override;
  bool knows_parameter(const at::Tensor& leaf) override;
  bool learn_parameter(const at::Tensor& leaf) override;
  void gradient_accumulated(StorageId id) override;
  FailureReport allocation_failed(const FailedAllocation& failed, OpId op,
                                  const std::string& message) override;
  std::shared_ptr<CaptureListener> keep_alive() override { return weak_from_this().lock(); }

 private:
  MemEngine(std::shared_ptr<ModuleActivity> modules, IsParameter is_parameter,
            bool has_allocator_channel, StackMode stack_mode);
  void update_state();
  bool is_of_another_mode(c10::StorageImpl* storage) const;
  bool knows(const ObservedStorage& observed);
  int64_t observe_bytes_locked(std::span<const at::Tensor> tensors);
  void relabel_since_birth(StorageId id, Category category);
  void begin_step();
  [[gnu::noinline, gnu::cold]] void begin_backward(int task, const torch::autograd::Node& node);
  Snapshot read_peak();
  void change_unit(UnitId unit, UnitEventKind kind, GatherReason reason = {});
  void own_storage(UnitId unit, StorageId storage);
  void apply_fact(UnitId unit, UnitFact fact, StorageId storage);

  TrackerFailures failures_;
  std::vector<op_hook::Thread> starts_;
  TrackedEvents events_;
  BackwardScopes backwards_;
  const IsParameter is_parameter_;
  std::shared_ptr<const PostMortem> post_mortem_;
  StepRule steps_;
  std::vector<StorageId> counted_;  // scratch space of observe_bytes_locked
  bool was_started_ = false;
};

}  // namespace tidegauge
