// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>
#include <vector>

#include "core/events/event_factory.h"

namespace tidegauge {

inline constexpr uint32_t kDepth =
    7;  // containers that stay active: 8 active modules with the leaf
inline constexpr int kLeafCalls = 500;

/// One training step of a deep model: per leaf module four ops in forward and six in backward,
/// gradients that are labelled late, an optimizer step with temporaries. Everything is freed at the
/// end, so the step can be repeated.
class TrainingStep {
 public:
  TrainingStep(uint32_t known_modules, uint32_t first_leaf)
      : known_modules_(known_modules), first_leaf_(first_leaf) {}

  std::vector<Event> make() {
    events_.push_back(events::iteration_begin(now()));
    events_.push_back(events::step_marker(now()));
    for (uint32_t m = 1; m <= kDepth; ++m) {
      events_.push_back(events::module_enter(now(), ModuleId(m), Phase::Forward));
    }
    for (int leaf = 0; leaf < kLeafCalls; ++leaf) forward(leaf);
    for (uint32_t m = kDepth; m >= 1; --m) {
      events_.push_back(events::module_exit(now(), ModuleId(m), Phase::Forward));
    }
    for (uint32_t m = 1; m <= kDepth; ++m) {
      events_.push_back(events::module_enter(now(), ModuleId(m), Phase::Backward));
    }
    for (int leaf = kLeafCalls - 1; leaf >= 0; --leaf) backward(leaf);
    for (uint32_t m = 1; m <= kDepth; ++m) {  // out of order: outermost first
      events_.push_back(events::module_exit(now(), ModuleId(m), Phase::Backward));
    }
    events_.push_back(events::optimizer_step_begin(now()));
    for (const StorageId gradient : gradients_) {
      const StorageId temp = birth(4096, kInOptimizerStep);
      events_.push_back(events::storage_freed(now(), temp));
      events_.push_back(events::storage_freed(now(), gradient));
    }
    events_.push_back(events::optimizer_step_end(now()));
    return std::move(events_);
  }

 private:
  events::Origin now() { return {++time_ns_, ThreadId(1), cuda(0)}; }

  StorageId birth(int64_t size_bytes, uint8_t facts) {
    const StorageId storage(++last_storage_);
    events_.push_back(events::storage_born(now(), storage, size_bytes, facts, OpId(7)));
    return storage;
  }

  ModuleId leaf_module(int leaf) const {
    return ModuleId(kDepth + 1 + (first_leaf_ + static_cast<uint32_t>(leaf)) % known_modules_);
  }

  void forward(int leaf) {
    events_.push_back(events::module_size(now(), leaf_module(leaf), SizeOf::Inputs, 2048));
    events_.push_back(events::module_enter(now(), leaf_module(leaf), Phase::Forward));
    for (int op = 0; op < 3; ++op) activations_.push_back(birth(2048 << op, 0));
    const StorageId scratch = birth(512, 0);
    events_.push_back(events::storage_freed(now(), scratch));
    events_.push_back(events::module_exit(now(), leaf_module(leaf), Phase::Forward));
    events_.push_back(events::module_size(now(), leaf_module(leaf), SizeOf::Outputs, 8192));
  }

  void backward(int leaf) {
    events_.push_back(events::module_enter(now(), leaf_module(leaf), Phase::Backward));
    for (int op = 0; op < 2; ++op) {
      const StorageId temp = birth(8192, kInBackward);
      const StorageId gradient = birth(4096, kInBackward);
      gradients_.push_back(gradient);
      events_.push_back(
          events::storage_relabelled(now(), gradient, Role::IsGradient, Since::Birth));
      events_.push_back(events::storage_freed(now(), temp));
    }
    const StorageId moved = birth(1024, kInBackward);
    events_.push_back(events::storage_relabelled(now(), moved, Role::IsActivation, Since::Now));
    events_.push_back(events::storage_freed(now(), moved));
    for (int op = 0; op < 3; ++op) {
      events_.push_back(events::storage_freed(now(), activations_.back()));
      activations_.pop_back();
    }
    events_.push_back(events::module_exit(now(), leaf_module(leaf), Phase::Backward));
  }

  uint32_t known_modules_;
  uint32_t first_leaf_;
  int64_t time_ns_ = 0;
  uint64_t last_storage_ = 0;
  std::vector<StorageId> activations_;
  std::vector<StorageId> gradients_;
  std::vector<Event> events_;
};

}  // namespace tidegauge
