// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/attention_choice.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "capture/compat/attention_kernels.h"
#include "simulate/claimed_device.h"

namespace tidegauge::simulation {
namespace {

struct Attention {
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  at::Tensor mask;
  double dropout;
  bool is_causal;
  bool has_grouped_queries;

  int64_t head() const { return query.size(3); }
  int64_t value_head() const { return value.size(3); }
  bool is_half() const {
    const at::ScalarType dtype = query.scalar_type();
    const bool has_bfloat16 = claimed_device().major >= 8;
    return dtype == at::kHalf || (has_bfloat16 && dtype == at::kBFloat16);
  }
  bool needs_gradient() const {
    return at::GradMode::is_enabled() &&
           (query.requires_grad() || key.requires_grad() || value.requires_grad());
  }
  bool has_equal_heads() const {
    return query.size(1) == key.size(1) && key.size(1) == value.size(1);
  }
};

/// Query, key and value are (batch, heads, tokens, head size) with at least one token.
bool has_usual_shape(const Attention& call) {
  for (const at::Tensor& each : {call.query, call.key, call.value}) {
    if (each.dim() != 4 || each.size(2) == 0) return false;
    if (each.stride(3) != 1 && each.size(3) != 1) return false;
  }
  return call.query.size(0) == call.key.size(0) && call.query.size(0) == call.value.size(0) &&
         call.query.size(3) == call.key.size(3);
}

/// True if the heads are equal, or if queries share the heads of keys and values.
bool heads_fit(const Attention& call, bool supports_groups) {
  if (call.has_equal_heads()) return true;
  return supports_groups && call.has_grouped_queries && call.key.size(1) == call.value.size(1) &&
         call.key.size(1) > 0 && call.query.size(1) % call.key.size(1) == 0;
}

bool can_be_cudnn(const Attention& call) {
  const at::Context& context = at::globalContext();
  const ClaimedDevice& device = claimed_device();
  const bool is_deterministic =
      context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly();
  if (!context.userEnabledCuDNNSDP() || is_deterministic || device.major < 8 || !call.is_half()) {
    return false;
  }
  if (call.dropout * 16 != std::floor(call.dropout * 16) || !heads_fit(call, true)) return false;
  const int64_t head = call.head(), value_head = call.value_head();
  if (head % 8 != 0 || value_head % 8 != 0 || call.key.size(2) == 1) return false;
  if (call.dropout != 0 && call.query.size(2) == 1) return false;
  if (head <= 128 && value_head <= 128) return true;
  const bool is_large = (device.major == 9 && device.minor == 0) || device.major == 10;
  if (is_large && head == 192 && value_head == 128) return true;
  if (!is_large || !kCudnnTakesLargeHeads || head > 256 || value_head > 256) return false;
  return !call.needs_gradient() || (head == 256 && value_head == 256);
}

bool can_be_flash(const Attention& call) {
  constexpr int64_t kLargestHead = 256;
  const ClaimedDevice& device = claimed_device();
  const int64_t head = call.head();
  if (!at::globalContext().userEnabledFlashSDP() || device.major < 8 || !call.is_half() ||
      call.mask.defined() || !heads_fit(call, true) || head > kLargestHead ||
      call.value_head() != head) {
    return false;
  }
  if (call.is_causal && call.query.size(2) != call.key.size(2)) return false;
  // Devices with little shared memory cannot run the backward of large heads.
  const bool is_small = (device.major == 8 && device.minor >= 6) || device.major == 12;
  return !is_small || !call.needs_gradient() || head <= 192 || (call.dropout == 0 && head > 224);
}

bool can_be_efficient(const Attention& call) {
  const ClaimedDevice& device = claimed_device();
  const bool is_half = call.is_half();
  if (!at::globalContext().userEnabledMemEfficientSDP() ||
      (!is_half && call.query.scalar_type() != at::kFloat) ||
      !heads_fit(call, kEfficientTakesGroups)) {
    return false;
  }
  const bool trains_mask =
      call.mask.defined() && call.mask.requires_grad() && at::GradMode::is_enabled();
  if (trains_mask) return false;
  const int64_t alignment = is_half ? 8 : device.major >= 8 ? 4 : 1;
  if (call.head() % alignment != 0 || call.value_head() % alignment != 0) return false;
  for (const at::Tensor& each : {call.query, call.key, call.value}) {
    if (device.major >= 8 && each.storage_offset() % alignment != 0) return false;
  }
  return true;
}

/// torch's default order prefers cuDNN where it is known to be faster.
bool prefers_cudnn() {
  const char* text = std::getenv("TORCH_CUDNN_SDPA_DEPRIORITIZED");
  const int major = claimed_device().major;
  return kPrefersCudnnAttention && (major == 9 || major == 10) &&
         (text == nullptr || std::string_view(text) != "1");
}

std::vector<at::SDPBackend> find_order() {
  using at::SDPBackend;
  std::vector<SDPBackend> order;
  bool is_default = true;
  constexpr SDPBackend kDefault[] = {SDPBackend::flash_attention, SDPBackend::efficient_attention,
                                     SDPBackend::math, SDPBackend::cudnn_attention};
  for (const SDPBackend each : at::globalContext().sDPPriorityOrder()) {
    if (order.size() < std::size(kDefault)) is_default &= each == kDefault[order.size()];
    order.push_back(each);
  }
  if (is_default && prefers_cudnn()) order.insert(order.begin(), SDPBackend::cudnn_attention);
  return order;
}

}  // namespace

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double> /*scale*/, bool has_grouped_queries) {
  const Attention call{
      query, key, value, mask.value_or(at::Tensor()), dropout, is_causal, has_grouped_queries};
  auto choice = at::SDPBackend::math;
  if (!has_usual_shape(call)) return static_cast<int64_t>(choice);
  for (const at::SDPBackend each : find_order()) {
    choice = each;
    if (each == at::SDPBackend::cudnn_attention && can_be_cudnn(call)) break;
    if (each == at::SDPBackend::flash_attention && can_be_flash(call)) break;
    if (each == at::SDPBackend::efficient_attention && can_be_efficient(call)) break;
    if (each == at::SDPBackend::math && at::globalContext().userEnabledMathSDP()) break;
    choice = at::SDPBackend::math;
  }
  return static_cast<int64_t>(choice);
}

}  // namespace tidegauge::simulation
