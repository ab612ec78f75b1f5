// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tidegauge::simulation {

/// The kernel that scaled_dot_product_attention chooses on the claimed device, as a number of
/// torch's SDPBackend: the first one in torch's order of preference that accepts the arguments and
/// that the user did not disable. The order begins with cuDNN's kernel on devices of compute
/// capability 9 and 10, else with flash attention.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> scale, bool has_grouped_queries);

}  // namespace tidegauge::simulation
