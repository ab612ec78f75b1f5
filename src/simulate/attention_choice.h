// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tidegauge::simulation {

/// The kernel that scaled_dot_product_attention chooses on a CUDA device of compute capability 8.0
/// or later, as a number of torch's SDPBackend. Order of preference: flash attention,
/// memory-efficient attention, plain matrix products. Kernels that the user disabled are skipped.
///
/// Never chooses the cuDNN kernel: whether torch prefers it depends on the version of cuDNN.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool has_grouped_queries);

}  // namespace tidegauge::simulation
