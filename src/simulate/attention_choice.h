// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tidegauge::simulation {

/// The kernel that scaled_dot_product_attention takes on a CUDA device of today (compute capability
/// 8.0 and later), as the number of torch's SDPBackend: flash attention, memory-efficient
/// attention, or plain matrix products, in this order, of those that the user has not switched off.
///
/// cuDNN's is never chosen: whether torch prefers it depends on the version of cuDNN.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool has_grouped_queries);

}  // namespace tidegauge::simulation
