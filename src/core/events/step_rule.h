// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// Decides where a training step begins, because programs do not say so: at the first call of a
/// root module after an optimizer step. A step may have any number of calls and optimizers.
///
///     model  model  step   model  model  step step   model
///     ^ 1                  ^ 2                       ^ 3
///
/// Without an optimizer, each repeated call of a root module begins a step. Without root modules,
/// each optimizer step does.
class StepRule {
 public:
  /// Call when an optimizer exists. Then the calls of root modules before its first step belong to
  /// one training step.
  void expect_optimizer() { has_optimizer_ = true; }

  /// Call before a root module is called. `again`: the module was called before, since the last
  /// iteration or reset of statistics. Returns true if a step begins.
  bool note_root_call(bool again) {
    has_roots_ = true;
    return take_begin(again && !has_optimizer_);
  }
  /// Returns true if a step begins.
  bool note_optimizer_begin() {
    has_optimizer_ = true;
    return !has_roots_ && take_begin(false);
  }
  void note_optimizer_end() { is_over_ = true; }
  void note_statistics_reset() { is_over_ |= !has_optimizer_; }

 private:
  bool take_begin(bool is_new_iteration) {
    const bool result = is_over_ || is_new_iteration;
    if (result) is_over_ = false;
    return result;
  }

  bool is_over_ = true;  // the next call begins a step
  bool has_roots_ = false;
  bool has_optimizer_ = false;
};

}  // namespace tidegauge
