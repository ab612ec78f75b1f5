// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string>

#include "core/events/ids.h"

namespace tidegauge {

/// What the schema of an op says about the storages behind its results.
struct OpFacts {
  const c10::FunctionSchema* schema = nullptr;
  mutable OpId id{};                    ///< see `op_id`; guarded by the lock of StorageRegistry
  bool returns_arguments = false;       ///< some result is an argument or a view of one
  bool returns_only_arguments = false;  ///< all results are, and none is written to: a view
  uint64_t written = 0;                 ///< bits of the results that the op writes to
  bool is_lazy_clone = false;           ///< needs the memory of its argument as torch made it
  bool makes_storages = false;          ///< some result is not an argument
  bool only_makes = false;              ///< likewise, and its arguments do not matter

  static OpFacts read(const c10::FunctionSchema& schema);
  /// True if the arguments must be observed before the op runs.
  bool needs_arguments() const {
    return (returns_arguments && !returns_only_arguments) || is_lazy_clone;
  }
};

// With the lock of StorageRegistry held.

/// Ops are numbered in the order of their first births.
[[gnu::noinline, gnu::cold]] OpId assign_op_id(const OpFacts& facts);
inline OpId op_id(const OpFacts& facts) { return facts.id ? facts.id : assign_op_id(facts); }
/// "aten::mm", "aten::add.out"; empty for an unknown id.
std::string op_name(OpId op);

}  // namespace tidegauge
