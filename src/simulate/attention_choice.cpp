// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/attention_choice.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

namespace tidegauge::simulation {
namespace {

constexpr int64_t kLargestFlashHead = 256;

struct Attention {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  at::Tensor mask;
  bool has_grouped_queries;
};

/// Query, key and value are (batch, heads, tokens, head size) with at least one token.
bool has_usual_shape(const Attention& call) {
  return call.query.dim() == 4 && call.key.dim() == 4 && call.value.dim() == 4 &&
         call.query.size(2) > 0 && call.key.size(2) > 0 && call.query.size(0) == call.key.size(0) &&
         call.query.size(3) == call.key.size(3) && call.query.stride(3) == 1 &&
         call.key.stride(3) == 1 && call.value.stride(3) == 1;
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool can_be_flash(const Attention& call) {
  const int64_t head = call.query.size(3);
  const bool heads_fit =
      call.query.size(1) == call.key.size(1)
          ? call.key.size(1) == call.value.size(1)
          : call.has_grouped_queries && call.query.size(1) % call.key.size(1) == 0;
  return at::globalContext().userEnabledFlashSDP() && is_half(call.query) && !call.mask.defined() &&
         heads_fit && head <= kLargestFlashHead && call.value.size(3) == head;
}

bool can_be_efficient(const Attention& call) {
  const bool has_supported_dtype = is_half(call.query) || call.query.scalar_type() == at::kFloat;
  const int64_t alignment = is_half(call.query) ? 8 : 4;
  const bool has_equal_heads =
      call.query.size(1) == call.key.size(1) && call.key.size(1) == call.value.size(1);
  const bool trains_mask =
      call.mask.defined() && call.mask.requires_grad() && at::GradMode::is_enabled();
  return at::globalContext().userEnabledMemEfficientSDP() && has_supported_dtype &&
         has_equal_heads && !trains_mask && call.query.size(3) % alignment == 0 &&
         call.value.size(3) % alignment == 0;
}

}  // namespace

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double /*dropout*/,
                         bool /*is_causal*/, std::optional<double> /*scale*/,
                         bool has_grouped_queries) {
  const Attention attention{query, key, value, mask.value_or(at::Tensor()), has_grouped_queries};
  auto choice = at::SDPBackend::math;
  if (has_usual_shape(attention)) {
    if (can_be_flash(attention)) {
      choice = at::SDPBackend::flash_attention;
    } else if (can_be_efficient(attention)) {
      choice = at::SDPBackend::efficient_attention;
    }
  }
  return static_cast<int64_t>(choice);
}

}  // namespace tidegauge::simulation
