// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/events/event.h"
#include "core/events/unit_event.h"

namespace tidegauge {

struct PostMortem;  // core/ledger/post_mortem.h

/// The first tensor that was observed on a storage.
struct TensorFacts {
  std::string_view dtype;  ///< as torch spells it, "float32"
  std::span<const int64_t> shape;
};

/// "[2, 3]"
std::string shape_text(std::span<const int64_t> shape);

/// A receiver of the same events as a Ledger, in the same order, and of the names behind the ids.
///
/// Called during training with a spin lock held: an implementation must return quickly, never block
/// and never throw.
class EventSink {
 public:
  virtual ~EventSink() = default;

  /// `first_tensor` and `stack` may come with a StorageBorn or StorageClaimed; null and 0 if not
  /// known.
  virtual void record(const Event& event, const TensorFacts* first_tensor,
                      StackId stack) noexcept = 0;

  /// In place of `record` for an AllocationFailed.
  virtual void record_failure(const Event& event, const PostMortem& post_mortem) noexcept = 0;

  /// Called before the first event with the id. A later name replaces it; an empty class name keeps
  /// the known one.
  virtual void name_module(ModuleId module, std::string_view name,
                           std::string_view class_name) noexcept = 0;
  virtual void name_op(OpId op, std::string_view name) noexcept = 0;
  /// The storage is the parameter or buffer `name` of the module; a storage may have several such
  /// names. Without a module, `name` is the program's own name for it.
  virtual void name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept = 0;
  /// An optimizer of this class runs a step.
  virtual void count_optimizer_step(std::string_view class_name) noexcept = 0;
  /// One frame per line, the innermost first.
  virtual void name_stack(StackId stack, std::string_view frames) noexcept = 0;
  /// A later name replaces an earlier one.
  virtual void name_unit(UnitId unit, std::string_view name) noexcept = 0;
  /// A change of a unit, after the last event that was recorded.
  virtual void record_unit(const UnitEvent& event) noexcept = 0;
};

}  // namespace tidegauge
