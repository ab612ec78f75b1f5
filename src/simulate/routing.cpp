// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/routing.h"

#include <algorithm>

#include "simulate/known_values.h"
#include "simulate/session_state.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {
namespace {

constexpr int64_t kMostExperts = 2048;  // a larger choice is one of words, not of experts

}  // namespace

void route(const OpTraits& traits, std::span<const c10::IValue> arguments,
           std::span<const c10::IValue> results) {
  if (!policy().routing || !arguments[0].isTensor() || results.empty()) return;
  const at::Tensor& scores = arguments[0].toTensor();
  const at::Tensor& chosen = results.back().toTensor();
  if (scores.dim() == 0 || !scores.is_floating_point() || chosen.scalar_type() != at::kLong) return;
  // topk(self, k, dim), max(self, dim), argmax(self, dim?): only along the last dimension.
  const c10::IValue& dim = arguments[traits.name == "aten::topk" ? 2 : 1];
  if (!dim.isInt() || (dim.toInt() != -1 && dim.toInt() != scores.dim() - 1)) return;
  const int64_t experts = scores.size(-1);
  const int64_t choices = traits.name == "aten::topk" ? arguments[1].toInt() : 1;
  if (experts > kMostExperts || choices < 1 || known_values::are_known(chosen)) return;
  const int64_t tokens = chosen.numel() / choices;
  const at::Tensor routed = policy().routing(tokens, choices, experts);
  const known_values::OutOfSight guard;
  TORCH_CHECK(routed.defined() && routed.numel() == chosen.numel() && routed.dtype() == at::kLong,
              "the routing returned a tensor of shape ", routed.sizes(), " and type ",
              routed.dtype(), " (expected ", tokens, " x ", choices, " numbers of experts, int64)");
  TORCH_CHECK(
      tokens == 0 || (routed.min().item().toLong() >= 0 && routed.max().item().toLong() < experts),
      "the routing chose an expert outside of 0 to ", experts - 1);
  known_values::keep_copy(chosen, routed.reshape(chosen.sizes()));
}

}  // namespace tidegauge::simulation
