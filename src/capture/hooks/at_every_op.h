// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "tidegauge/export.h"

namespace tidegauge {

/// What every op asks of the process, in one line of the cache. Each belongs to the file named.
struct alignas(64) AtEveryOp {
  std::atomic<int64_t> op_starts{0};       ///< of all threads together, less the stops; op_hook.h
  std::atomic<int64_t> runner_holders{0};  ///< op_hook.h
  std::atomic<uint64_t> session{0};        ///< moment_facts.h
  std::atomic<int64_t> stack_starts{0};    ///< of Python's stacks, less the stops; birth_stacks.h
  std::atomic<uint64_t> node_epoch{1};     ///< running_node.h
};
extern TIDEGAUGE_API AtEveryOp at_every_op;

}  // namespace tidegauge
