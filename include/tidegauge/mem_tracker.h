// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/mem_snapshot.h"
#include "tidegauge/mem_tracker_options.h"  // IWYU pragma: export
#include "tidegauge/unit_memory.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tidegauge {

class NnMemTracker;  // private to libtidegauge

/// Reports the memory of each category and device: now, at the peak, and per module.
///
///     tidegauge::MemTracker tracker;
///     tracker.track_external(model, optimizer, inputs);  // tensors made before `enter`
///     tracker.enter();
///     auto loss = tidegauge::call(model, inputs).sum();  // see module_scope.h
///     loss.backward();
///     tidegauge::step(optimizer);                        // see optimizer_step.h
///     tracker.exit();
///     tracker.display_snapshot("peak", "MiB");
///     tracker.display_modulewise_snapshots(3, "MiB");
///
/// It observes the ops of the thread that entered, of attached threads, and of the backwards that
/// these start; threads.h explains the effect of a guard around the entry. C++ modules and
/// optimizers have no hooks, so wrap a forward in ModuleScope, `call` or `Tracked`, and a step in
/// OptimizerStepScope or `step`. Backward needs no wrapper. A leaf tensor is a parameter if it is
/// registered in a module that was tracked or called.
///
/// Holds tensors and modules weakly. A module must be owned by a shared_ptr, as torch::nn's are, or
/// outlive the tracker.
///
/// Thread-safe. Destroying an entered tracker exits it.
class TIDEGAUGE_API MemTracker {
 public:
  /// Throws IoError if the trace file cannot be created, or exists and `overwrites` is false;
  /// UsageError for an unknown value of `stacks`.
  explicit MemTracker(const MemTrackerOptions& options = {});
  ~MemTracker();
  MemTracker(const MemTracker&) = delete;
  MemTracker& operator=(const MemTracker&) = delete;

  /// Resets the peak to the current bytes. Entries nest; only the outermost exit ends the tracking.
  /// Throws NotSupported if another library uses torch's dispatch key Fake.
  void enter();
  /// May be called from any thread. The trace file is then up to date; the destructor completes it.
  /// Throws UsageError if not entered.
  void exit();

  /// Tracks tensors that were made before `enter`. A later call overrides an earlier label.
  ///
  /// Parameters, buffers and gradients of a module and its submodules.
  void track_external(const torch::nn::Module& module);
  /// The states of a torch::optim optimizer. States of other optimizers are labelled only if they
  /// are made within a step.
  void track_external(const torch::optim::Optimizer& optimizer);
  /// Counts as Other.
  void track_external(const at::Tensor& tensor);
  /// A holder (torch::nn::Linear), or a pointer to a module.
  template <typename Holder>
    requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
  void track_external(const Holder& module) {
    track_external(static_cast<const torch::nn::Module&>(*module));
  }
  template <typename First, typename Second, typename... More>
    requires(!std::is_convertible_v<const First&, std::string_view>)
  void track_external(const First& first, const Second& second, const More&... more) {
    track_external(first);
    track_external(second);
    (track_external(more), ...);
  }

  /// The same with a name that the program chooses: "generator", "discriminator".
  /// The name replaces the class name of a root module in statistics, printed tables, traces and
  /// post-mortems, also in the names of its submodules. A second root with the same name gets a
  /// number ("generator#2"); a submodule keeps its path. Throws UsageError if the name is empty or
  /// contains a dot.
  void track_external(std::string_view name, const torch::nn::Module& module);
  template <typename Holder>
    requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
  void track_external(std::string_view name, const Holder& module) {
    track_external(name, static_cast<const torch::nn::Module&>(*module));
  }
  /// The name appears in trace files, beside those of parameters and buffers. Figures are per
  /// category, without names; this is why an optimizer takes no name.
  void track_external(std::string_view name, const at::Tensor& tensor);

  /// `type`: "current" or "peak"; throws UsageError for any other.
  MemSnapshot get_tracker_snapshot(std::string_view type = "current") const;
  /// Current bytes that torch's allocators did not allocate (`from_blob`, mapped files). The
  /// categories include them.
  BytesByDevice get_foreign_memory() const;
  /// Bytes that the allocator allocated but that belong to no observed tensor; part of Other. Needs
  /// `MemTrackerOptions::allocator`. `type`: "current" or "peak" (the moment of the highest total);
  /// throws UsageError for any other.
  BytesByDevice get_untracked_memory(std::string_view type = "current") const;
  /// The live modules that were called, in the order of their first call.
  std::vector<ModMemStats> memory_tracking() const;
  /// The memory of each ShardedUnit (sharded_unit.h), in the order of their creation.
  std::vector<UnitMemory> units() const;
  /// Forgets the statistics of modules. Bytes, labels, names and the peak stay.
  void reset_mod_stats();

  /// Print to standard output; render_snapshot and render_modulewise_snapshots return the text.
  void display_snapshot(std::string_view type = "current", std::string_view units = "B") const;
  void display_modulewise_snapshots(int depth = 2, std::string_view units = "B") const;

  /// The report on the last failed allocation: live bytes by category, module and tensor, and the
  /// largest memory that could be freed. Empty if no allocation failed. When the allocation failed,
  /// the report was also printed to standard error and recorded.
  std::string render_post_mortem() const;

  /// Number of impossible events that were dropped, and a description of the first one.
  int64_t anomaly_count() const;
  std::string first_anomaly() const;
  /// Number of exceptions in our own hooks, which the training never sees, and the message of the
  /// first one. Failures while an op ran count for every tracker that exists then.
  int64_t failure_count() const;
  std::string first_failure() const;

  /// Number of events missing in the trace file because the disk was full or too slow, and the
  /// reason for the first one.
  int64_t lost_event_count() const;
  std::string first_loss() const;

 private:
  std::shared_ptr<NnMemTracker> impl_;
};

}  // namespace tidegauge
