// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace tidegauge {

/// Process-wide state that every op reads, in one cache line. The comment of each member names the
/// header that owns it.
struct alignas(64) AtEveryOp {
  std::atomic<int64_t> op_starts{0};       ///< starts minus stops of all threads; op_switch.h
  std::atomic<int64_t> left_threads{0};    ///< threads whose starts were all stopped; op_switch.h
  std::atomic<int64_t> runner_holders{0};  ///< op_switch.h
  std::atomic<int64_t> op_listeners{0};    ///< op_stream.h
  std::atomic<int64_t> detours{0};         ///< runner_holders + op_listeners
  std::atomic<uint64_t> session{0};        ///< moment_facts.h
  std::atomic<int64_t> stack_starts{0};    ///< starts minus stops; birth_stacks.h
  std::atomic<uint64_t> node_epoch{1};     ///< running_node.h
};
extern AtEveryOp at_every_op;

}  // namespace tidegauge
