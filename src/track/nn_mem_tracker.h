// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tidegauge/mem_tracker_options.h"
#include "trace/recorder.h"
#include "track/memory_tracker.h"
#include "track/module_labels.h"
#include "track/nn_mod_tracker.h"

namespace tidegauge {

/// The implementation of MemTracker for torch::nn modules: an NnModTracker that notifies a
/// MemoryTracker, the engine. Scopes share ownership of it, so they may outlive the MemTracker.
class NnMemTracker final : public NnModTracker {
 public:
  explicit NnMemTracker(const MemTrackerOptions& options);

  void begin_optimizer_step() noexcept override;
  void end_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept override;

  void label_module(const torch::nn::Module& module);
  void label_states(const torch::optim::Optimizer& optimizer);

  int64_t failure_count() const;
  std::string first_failure() const;

  const std::shared_ptr<ModuleLabels> labels;
  const std::shared_ptr<MemoryTracker> memory;
  const std::shared_ptr<Recorder> recorder;  // may be null
  std::mutex entry_mutex;                    // guards entry_count

 protected:
  void on_enter(const torch::nn::Module& module, ModuleId id,
                const ModuleActivity::Entered& entered, at::TensorList inputs) override;
  void on_leave(ModuleId id, bool is_bw, at::TensorList outputs) noexcept override;
  void on_new_modules() override;

 private:
  /// Runs `body`. If it throws, counts the failure instead of passing the exception on to training.
  template <typename Body>
  void guarded(const char* where, Body&& body) noexcept;

  const bool strict_;
  mutable std::mutex failure_mutex_;
  int64_t failure_count_ = 0;
  std::string first_failure_;
};

}  // namespace tidegauge
