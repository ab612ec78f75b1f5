// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// Decides where a training step begins, since programs do not say so: with the first call of a
/// root module after an optimizer step, however many calls and optimizers a step has.
///
///     model  model  step   model  model  step step   model
///     ^ 1                  ^ 2                       ^ 3
///
/// Without an optimizer, each repeated call of a root module begins a step. Without root modules,
/// each optimizer step does.
class StepRule {
 public:
  /// An optimizer exists that has not stepped yet: several calls may come before its step.
  void expect_optimizer() { has_optimizer_ = true; }

  /// A root module is about to be called; `again`: not for the first time since the last reset of
  /// statistics or the last iteration. Returns true if a step begins.
  bool root_called(bool again) {
    has_roots_ = true;
    return begins(again && !has_optimizer_);
  }
  /// Returns true if a step begins.
  bool optimizer_begins() {
    has_optimizer_ = true;
    return !has_roots_ && begins(false);
  }
  void optimizer_ends() { is_over_ = true; }
  void statistics_reset() { is_over_ |= !has_optimizer_; }

 private:
  bool begins(bool is_new_iteration) {
    const bool result = is_over_ || is_new_iteration;
    if (result) is_over_ = false;
    return result;
  }

  bool is_over_ = true;  // the next call begins a step
  bool has_roots_ = false;
  bool has_optimizer_ = false;
};

}  // namespace tidegauge
