// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "core/events/op_call.h"

namespace tidegauge {

/// Which part of a device an op keeps busy.
enum class OpClass : uint8_t {
  Free,         ///< a view, or an allocation: no kernel runs
  Matmul,       ///< products of matrices
  Convolution,  ///< convolutions and their gradients
  Attention,    ///< fused attention and its gradients
  Memory,       ///< everything else: its time is that of its bytes
  Collective,   ///< communication between ranks
  Transfer,     ///< a copy between host and device
};
/// "free", "matmul", ...
std::string_view to_string(OpClass kind);

enum class CollectiveKind : uint8_t { None, AllGather, ReduceScatter, AllReduce, AllToAll, Send };

/// What an op costs, from its shapes alone. Counts that exceed 63 bits are cut to the largest.
///
/// flops: 2 for each product that is added up, as torch.utils.flop_counter counts them; 0 for ops
/// that are not products. Attention counts the whole square, and `masked_flops` of them are those
/// that a causal kernel skips.
///   attention forward    2 b h q k (d + e)       q, k: lengths; d, e: widths of the key and value
///   attention backward   2 b h q k (3 d + 2 e)   the kernels compute the scores again
///   convolution          2 outputs * kernel * channels in a group; each gradient costs the same
/// Sequences that are packed into one (`cum_seq_q`) count as equally long.
///
/// bytes: each tensor once, in the elements that it has in memory (an expanded dimension counts
/// once). Lookups read and write only the rows that they touch. The matrix of scores of fused
/// attention is never in memory.
struct OpCost {
  OpClass kind = OpClass::Free;
  int64_t flops = 0;
  int64_t masked_flops = 0;
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  bool is_on_host = false;   ///< all its tensors are on the CPU
  std::string_view dtype{};  ///< of the products, in the OpCall; else of the first tensor
  CollectiveKind collective = CollectiveKind::None;
  int64_t payload_bytes = 0;  ///< of a collective: what a rank has when all parts are together
  int64_t group_size = 0;     ///< of a collective; 0 if it is unknown
  // Of a Matmul: `products` times [rows, depth] x [depth, columns].
  int64_t products = 0;
  int64_t rows = 0;
  int64_t depth = 0;
  int64_t columns = 0;
};

/// Never throws for unknown ops, which are Memory. `dtype` refers to `call`.
OpCost find_op_cost(const OpCall& call);

}  // namespace tidegauge
