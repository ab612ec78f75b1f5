// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>

#include <cstdint>
#include <string>

#include "core/events/ids.h"

namespace tidegauge {

/// Facts about the storages behind the results of an op, read from its schema.
struct OpFacts {
  const c10::FunctionSchema* schema = nullptr;
  mutable OpId id{};                    ///< see `op_id`; guarded by the lock of StorageRegistry
  bool returns_arguments = false;       ///< some result is an argument or a view of one
  bool returns_only_arguments = false;  ///< all results are, and the op writes to none of them
  uint64_t written = 0;                 ///< bit i: the op writes to result i
  bool is_lazy_clone = false;           ///< _lazy_clone: its argument must have torch's own context
  bool makes_storages = false;          ///< some result is not an argument
  bool only_makes = false;              ///< makes_storages, and the arguments need not be observed

  static OpFacts read(const c10::FunctionSchema& schema);
  /// True if the arguments must be observed before the op runs.
  bool needs_arguments() const {
    return (returns_arguments && !returns_only_arguments) || is_lazy_clone;
  }
};

// The lock of StorageRegistry must be held for these functions.

/// Ops are numbered in the order in which they first make a storage.
[[gnu::noinline, gnu::cold]] OpId assign_op_id(const OpFacts& facts);
inline OpId op_id(const OpFacts& facts) { return facts.id ? facts.id : assign_op_id(facts); }
/// "aten::mm", "aten::add.out"; empty for an unknown id.
std::string op_name(OpId op);

}  // namespace tidegauge
