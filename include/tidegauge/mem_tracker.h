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

/// Tells how much memory there is of each category and device: now, at the peak, in each module.
///
///     tidegauge::MemTracker tracker;
///     tracker.track_external(model, optimizer, inputs);  // what was made before `enter`
///     tracker.enter();
///     auto loss = tidegauge::call(model, inputs).sum();  // see module_scope.h
///     loss.backward();
///     tidegauge::step(optimizer);                        // see optimizer_step.h
///     tracker.exit();
///     tracker.display_snapshot("peak", "MiB");
///     tracker.display_modulewise_snapshots(3, "MiB");
///
/// Ops are seen in the thread that entered, in those that are attached, and in the backwards that
/// they begin; threads.h says what a guard around the entry does. C++ modules and optimizers have
/// no hooks: forward is seen where it is wrapped (ModuleScope, `call`, `Tracked`),
/// a step likewise (OptimizerStepScope, `step`); backward needs nothing more. A leaf is a parameter
/// if a module that was tracked or called has registered it.
///
/// Tensors and modules are held weakly. A module must be owned by a shared_ptr (as those of
/// torch::nn are), or outlive the tracker.
///
/// Thread-safe. Destroying an entered tracker exits it.
class TIDEGAUGE_API MemTracker {
 public:
  /// IoError if the trace file cannot be made, or exists and is not to be overwritten; UsageError
  /// for `stacks` that there are not.
  explicit MemTracker(const MemTrackerOptions& options = {});
  ~MemTracker();
  MemTracker(const MemTracker&) = delete;
  MemTracker& operator=(const MemTracker&) = delete;

  /// The peak restarts from what is there. Entries nest; only the outermost exit ends the tracking.
  /// NotSupported if another library owns torch's dispatch key Fake.
  void enter();
  /// From any thread. The trace file has all of it then, and is ended when the tracker is
  /// destroyed. UsageError if not entered.
  void exit();

  /// Tracks what was made outside. What is told twice has the last label.
  /// Parameters, buffers and gradients of a module and all below it.
  void track_external(const torch::nn::Module& module);
  /// The states of an optimizer of torch::optim; those of other optimizers have their label if
  /// they are made within a step.
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

  /// Likewise, under a name of the program's own: "generator", "discriminator".
  /// It takes the place of the class in the name of a root module and of all below it, in
  /// statistics, what is printed, traces and post-mortems; a second one of that name gets a number
  /// ("generator#2"), and a module below another keeps its path. UsageError if it is empty or has a
  /// dot.
  void track_external(std::string_view name, const torch::nn::Module& module);
  template <typename Holder>
    requires requires(const Holder& holder) { static_cast<const torch::nn::Module&>(*holder); }
  void track_external(std::string_view name, const Holder& module) {
    track_external(name, static_cast<const torch::nn::Module&>(*module));
  }
  /// A trace file has the name, beside those of parameters and buffers; figures are by category and
  /// have none. So an optimizer takes none: its states are one category.
  void track_external(std::string_view name, const at::Tensor& tensor);

  /// `type`: "current" or "peak", otherwise UsageError.
  MemSnapshot get_tracker_snapshot(std::string_view type = "current") const;
  /// Bytes, among the current ones, that torch's allocators did not make (`from_blob`, mapped
  /// files). They are part of their categories as well.
  BytesByDevice get_foreign_memory() const;
  /// Bytes that the allocator made and no tensor has shown; part of Other. Only with
  /// `MemTrackerOptions::allocator`. `type`: "current" or "peak", the moment of the most bytes in
  /// all, otherwise UsageError.
  BytesByDevice get_untracked_memory(std::string_view type = "current") const;
  /// The living modules that were called, in the order of their first call.
  std::vector<ModMemStats> memory_tracking() const;
  /// What each ShardedUnit of the program holds (sharded_unit.h), in the order of their making.
  std::vector<UnitMemory> units() const;
  /// Forgets the statistics of modules. Bytes, labels, names and the peak stay.
  void reset_mod_stats();

  /// Print to standard output; render_snapshot and render_modulewise_snapshots return the text.
  void display_snapshot(std::string_view type = "current", std::string_view units = "B") const;
  void display_modulewise_snapshots(int depth = 2, std::string_view units = "B") const;

  /// The report on the last allocation that failed: what was alive by category, module and tensor,
  /// and what could go. Empty if none has. It was printed to standard error then, and recorded.
  std::string render_post_mortem() const;

  /// Events that cannot be true, which were left out, and the first one's text.
  int64_t anomaly_count() const;
  std::string first_anomaly() const;
  /// Failures of our own hooks that were kept from the training, and the first one's text. Those of
  /// the hook on ops are common to all trackers.
  int64_t failure_count() const;
  std::string first_failure() const;

  /// Events that the trace file lacks, since the disk was full or too slow, and why the first does.
  int64_t lost_event_count() const;
  std::string first_loss() const;

  class Impl;  // private to libtidegauge

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace tidegauge
