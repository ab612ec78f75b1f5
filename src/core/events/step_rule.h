// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// Decides where a training step begins, since no program says so: with the first call of a root
/// module after an optimizer has stepped, however many calls and optimizers a step has.
///
///     model  model  step   model  model  step step   model
///     ^ 1                  ^ 2                       ^ 3
///
/// Without an optimizer, with each call of a root module that was called before; without root
/// modules, with each step of an optimizer.
class StepRule {
 public:
  /// There is an optimizer, though it has not stepped yet: several calls may come before it does.
  void expect_optimizer() { has_optimizer_ = true; }

  /// A root module is about to be called; `again`: since the last reset of statistics or iteration.
  /// Whether a step begins.
  bool root_called(bool again) {
    has_roots_ = true;
    return begins(again && !has_optimizer_);
  }
  /// Whether a step begins.
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

  bool is_over_ = true;  // what begins next begins a step
  bool has_roots_ = false;
  bool has_optimizer_ = false;
};

}  // namespace tidegauge
