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

namespace tidegauge {

/// Where a label comes from: the user, or a hook on modules and optimizers.
enum class NamedBy : uint8_t { User, Hook };

/// The engine of every tracker of memory: turns the reports of capture, modules and optimizers into
/// events (TrackedEvents), and answers from the Ledger.
///
/// It observes ops in threads that started a tracker or are attached (tidegauge/threads.h), and in
/// their backwards. Thread-safe by the lock of StorageRegistry, except `start` and `stop`.
class TIDEGAUGE_API MemoryTracker final : public CaptureListener,
                                          public std::enable_shared_from_this<MemoryTracker> {
 public:
  /// True if the program owns the leaf as a parameter. Called without the lock; may take the GIL.
  using IsParameter = std::function<bool(const at::Tensor&)>;

  /// `has_allocator_channel`: see hooks/allocator_channel.h.
  static std::shared_ptr<MemoryTracker> create(std::shared_ptr<ModuleActivity> modules,
                                               IsParameter is_parameter,
                                               bool has_allocator_channel = false,
                                               StackMode stack_mode = StackMode::None);
  ~MemoryTracker();
  /// All of the process that are not being destroyed.
  static std::vector<std::shared_ptr<MemoryTracker>> living();

  /// Restarts the peak. NotSupported if another library owns the dispatch key.
  void start();
  void stop();

  /// Labels the storages of a tensor; the last label holds. `owner`: of a parameter or buffer. A
  /// fake tensor of another mode than the tracker's counts only if the user labels it.
  void label(const at::Tensor& tensor, Role role, Since since, ModuleId owner = {},
             NamedBy named_by = NamedBy::Hook);
  /// Sums the bytes of the storages behind the tensors that this tracker knows, each storage once.
  int64_t known_bytes(std::span<const at::Tensor> tensors);
  std::optional<Category> find_category(const at::Tensor& tensor);

  /// The bytes behind `inputs` and `outputs` become sizes of the module.
  void enter_module(ModuleId module, Phase phase, std::span<const at::Tensor> inputs);
  void exit_module(ModuleId module, Phase phase, std::span<const at::Tensor> outputs);
  /// The running node needs a recompute: its backward has begun before its first op.
  void begin_recompute();
  void set_module_size(ModuleId module, SizeOf size_of, int64_t size_bytes);
  /// The module reached a state from `kFirstMark` on. No effect without statistics.
  void mark_module(ModuleId module, ModuleState state);
  /// The module died. Its backward, if still to come, has no statistics.
  void forget_module(ModuleId module);
  /// A root module is about to be called. If it was called before, module statistics restart, or
  /// NotSupported if `strict`.
  void begin_root_call(ModuleId module, bool strict, const char* tracker_name = "MemTracker");
  void reset_statistics();
  /// An optimizer exists, although it may not have stepped yet (core/events/step_rule.h).
  void expect_optimizer();
  void optimizer_step(bool begins);

  /// Sends every event to `sink` too. UsageError after the first event.
  void record_to(std::shared_ptr<EventSink> sink);
  bool is_recording() const { return events_.sink() != nullptr; }
  // No effect without a sink. `name_owned`: a parameter or buffer, or what the user calls so.
  void name_class(ModuleId module, std::string_view class_name);
  void name_owned(const at::Tensor& tensor, ModuleId module, std::string_view name);
  void count_optimizer_step(std::string_view class_name);

  // Sharded parameters (core/ledger/sharded_units.h). No effect before the first `add_unit`.
  void add_unit(UnitId unit, const std::string& name);
  void label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor);
  void begin_gather(UnitId unit, GatherReason reason);
  void finish_gather(UnitId unit);
  void release(UnitId unit, bool keeps_post_forward_shard);
  void reduce(UnitId unit);
  std::vector<UnitReport> units();

  Snapshot current();
  /// An activation that a backward freed is a Saved Activation. Empty before the first start.
  Snapshot peak();
  std::map<Device, int64_t> foreign_bytes();  ///< in `current`, not from torch's allocators
  std::vector<ModuleId> modules();
  ModuleStats module_stats(ModuleId module);
  uint64_t version();  ///< changes whenever the statistics of modules do
  /// True if another thread runs a backward: gradients must not be touched then.
  bool has_backward_elsewhere();
  std::shared_ptr<const PostMortem> post_mortem();  ///< the last one; may be null
  int64_t anomaly_count();
  std::string first_anomaly();
  size_t footprint_bytes();  ///< of the ledger and the table of storages

  // CaptureListener
  void storage_born(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_born(StorageId id, int64_t size_bytes, Device device, const c10::TensorImpl* tensor,
                    uint8_t birth_facts, OpId op) override;
  void storage_found(const ObservedStorage& observed, uint8_t birth_facts, OpId op) override;
  void storage_freed(StorageId id, bool by_backward) override;
  void storage_resized(StorageId id, int64_t size_bytes, StorageId allocated) override;
  void memory_allocated(StorageId id, Device device, int64_t size_bytes) override;
  void node_runs(int task, const torch::autograd::Node& node) override;
  void runs_outside_backward() override;
  bool knows_parameter(const at::Tensor& leaf) override;
  bool learn_parameter(const at::Tensor& leaf) override;
  void gradient_accumulated(StorageId id) override;
  FailureReport allocation_failed(const FailedAllocation& failed, OpId op,
                                  const std::string& message) override;
  std::shared_ptr<CaptureListener> keep_alive() override { return weak_from_this().lock(); }

 private:
  MemoryTracker(std::shared_ptr<ModuleActivity> modules, IsParameter is_parameter,
                bool has_allocator_channel, StackMode stack_mode);
  void update_state();
  bool is_of_another_mode(c10::StorageImpl* storage) const;
  bool knows(const ObservedStorage& observed);
  int64_t sum_known(std::span<const at::Tensor> tensors);
  void rename_since_birth(StorageId id, Category category);
  void begin_step();
  Snapshot read_peak();
  void change_unit(UnitId unit, UnitEventKind kind, GatherReason reason = {});
  void own_storage(UnitId unit, StorageId storage);
  void apply_fact(UnitId unit, UnitFact fact, StorageId storage);

  std::vector<op_hook::Thread> starts_;
  TrackedEvents events_;
  BackwardScopes backwards_;
  const IsParameter is_parameter_;
  std::shared_ptr<const PostMortem> post_mortem_;
  StepRule steps_;
  std::vector<StorageId> counted_;  // scratch of sum_known
  bool was_started_ = false;
};

}  // namespace tidegauge
