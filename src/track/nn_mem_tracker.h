// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>

#include "tidegauge/mem_tracker_options.h"
#include "trace/recorder.h"
#include "track/nn_mod_tracker.h"
#include "track/training_observer.h"

namespace tidegauge {

/// The front end of MemTracker for torch::nn modules: an NnModTracker that notifies a
/// TrainingObserver. Scopes share ownership of it, so they may outlive the MemTracker.
class NnMemTracker final : public NnModTracker {
 public:
  explicit NnMemTracker(const MemTrackerOptions& options);

  void begin_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept override;
  void end_optimizer_step(const torch::optim::Optimizer& optimizer) noexcept override;

  void label_module(const torch::nn::Module& module, LabelledBy labelled_by);
  void label_states(const torch::optim::Optimizer& optimizer, LabelledBy labelled_by);

  MemEngine& engine() const { return observer.engine(); }

  TrainingObserver observer;
  const std::shared_ptr<Recorder> recorder;  // may be null
  std::mutex entry_mutex;                    // guards entry_count

 protected:
  void on_enter(const torch::nn::Module& module, ModuleId id,
                const ModuleActivity::Entered& entered, at::TensorList inputs) override;
  void on_leave(ModuleId id, bool is_bw, at::TensorList outputs) noexcept override;
  void on_new_modules() override;
};

}  // namespace tidegauge
