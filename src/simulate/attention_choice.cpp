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

/// Batches of heads of at least one token.
bool has_usual_shape(const Attention& of) {
  return of.query.dim() == 4 && of.key.dim() == 4 && of.value.dim() == 4 && of.query.size(2) > 0 &&
         of.key.size(2) > 0 && of.query.size(0) == of.key.size(0) &&
         of.query.size(3) == of.key.size(3) && of.query.stride(3) == 1 && of.key.stride(3) == 1 &&
         of.value.stride(3) == 1;
}

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool can_be_flash(const Attention& of) {
  const int64_t head = of.query.size(3);
  const bool heads_fit = of.query.size(1) == of.key.size(1)
                             ? of.key.size(1) == of.value.size(1)
                             : of.has_grouped_queries && of.query.size(1) % of.key.size(1) == 0;
  return at::globalContext().userEnabledFlashSDP() && is_half(of.query) && !of.mask.defined() &&
         heads_fit && head <= kLargestFlashHead && of.value.size(3) == head;
}

bool can_be_efficient(const Attention& of) {
  const bool is_taken = is_half(of.query) || of.query.scalar_type() == at::kFloat;
  const int64_t alignment = is_half(of.query) ? 8 : 4;
  const bool has_equal_heads =
      of.query.size(1) == of.key.size(1) && of.key.size(1) == of.value.size(1);
  const bool trains_mask =
      of.mask.defined() && of.mask.requires_grad() && at::GradMode::is_enabled();
  return at::globalContext().userEnabledMemEfficientSDP() && is_taken && has_equal_heads &&
         !trains_mask && of.query.size(3) % alignment == 0 && of.value.size(3) % alignment == 0;
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
