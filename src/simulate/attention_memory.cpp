// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/attention_memory.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "simulate/ceil_div.h"
#include "simulate/claimed_device.h"

namespace tidegauge::simulation::attention_memory {
namespace {

using Handle = KernelRequests::Handle;

constexpr int64_t kFloat = 4;

int64_t round_to(int64_t number, int64_t unit) { return ceil_div(number, unit) * unit; }

/// The sizes of a call with tensors of shape (batch, heads, tokens, head).
struct Sizes {
  int64_t batch, heads, queries, keys, key_heads, head, value_head, item_bytes;

  Sizes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value)
      : batch(query.size(0)),
        heads(query.size(1)),
        queries(query.size(2)),
        keys(key.size(2)),
        key_heads(key.size(1)),
        head(query.size(3)),
        value_head(value.size(3)),
        item_bytes(static_cast<int64_t>(query.itemsize())) {}

  int64_t rows() const { return batch * heads; }
  /// One number for each query.
  int64_t sum_bytes(int64_t query_count) const { return rows() * query_count * kFloat; }
  int64_t flash_head() const { return round_to(head, head <= 128 ? 32 : 64); }
};

const at::Tensor& tensor(const KernelCall& call, size_t argument) {
  return call.arguments[argument].toTensor();
}
Sizes forward_sizes(const KernelCall& call) {
  return {tensor(call, 0), tensor(call, 1), tensor(call, 2)};
}
/// The first argument of a backward is the gradient.
Sizes backward_sizes(const KernelCall& call) {
  return {tensor(call, 1), tensor(call, 2), tensor(call, 3)};
}

/// Kernels that work on (batch, tokens, heads, head) copy a tensor of another layout.
int64_t copied_bytes(const at::Tensor& tensor) {
  int64_t stride = 1;
  for (const int64_t dimension : {3, 1, 2, 0}) {
    if (tensor.size(dimension) != 1 && tensor.stride(dimension) != stride) {
      return tensor.numel() * static_cast<int64_t>(tensor.itemsize());
    }
    stride *= tensor.size(dimension);
  }
  return 0;
}

void add_results(KernelRequests& requests, size_t count) {
  for (size_t i = 0; i < count; ++i) requests.result(i);
}

/// Key and value have fewer heads: gradients for all heads, which are summed afterwards.
void add_expanded(const Sizes& sizes, KernelRequests& requests) {
  if (sizes.key_heads == sizes.heads) return;
  const int64_t tokens = sizes.rows() * sizes.keys * sizes.item_bytes;
  requests.request(tokens * sizes.head);
  requests.request(tokens * sizes.value_head);
}

/// Tiles of the queries' gradient, each with a lock, and if the head is large the keys' and values'
/// gradients.
int64_t efficient_workspace_bytes(const Sizes& sizes) {
  constexpr int64_t kLock = 16;
  const bool is_half = sizes.item_bytes == 2;
  const int64_t head = std::max(sizes.head, sizes.value_head);
  const bool is_large = head > 128;
  const int64_t rows = is_large || (is_half && head > 64) ? 128 : 64;
  const int64_t columns = head <= 64 || is_large ? 64 : 128;
  int64_t bytes = ceil_div(sizes.queries, rows) * ceil_div(sizes.head, columns) *
                  (rows * columns * kFloat + kLock);
  if (is_half && is_large) {
    bytes += round_to(sizes.keys, 128) *
             (round_to(sizes.head, 64) + round_to(sizes.value_head, 64)) * kFloat;
  }
  return sizes.rows() * bytes;
}

/// How many parts of the keys torch's flash kernel works on at the same time: as many as fill the
/// device at 85 % of the best efficiency.
int64_t count_flash_splits(const Sizes& sizes) {
  const auto slots = static_cast<double>(claimed_device().multiprocessors * 2);
  const auto blocks = static_cast<double>(sizes.rows() * ceil_div(sizes.queries, 64));
  if (blocks >= 0.8 * slots) return 1;
  const int64_t key_block = sizes.head <= 64 ? 256 : sizes.head <= 128 ? 128 : 64;
  const int64_t key_blocks = ceil_div(sizes.keys, key_block);
  const int64_t most = std::min({int64_t{128}, static_cast<int64_t>(slots), key_blocks});
  const auto is_different = [&](int64_t splits) {
    return splits == 1 || ceil_div(key_blocks, splits) != ceil_div(key_blocks, splits - 1);
  };
  const auto efficiency = [&](int64_t splits) {
    const double waves = blocks * static_cast<double>(splits) / slots;
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) {
    if (is_different(splits)) best = std::max(best, efficiency(splits));
  }
  for (int64_t splits = 1; splits <= most; ++splits) {
    if (is_different(splits) && efficiency(splits) >= 0.85 * best) return splits;
  }
  return 1;
}

}  // namespace

void add_efficient(const KernelCall& call, KernelRequests& requests) {
  const Sizes sizes = forward_sizes(call);
  for (const size_t result : {2, 3, 0, 1}) requests.result(result);  // the seeds come first
  if (sizes.item_bytes == kFloat || sizes.value_head <= 128) return;
  requests.release(requests.request(sizes.rows() * sizes.queries * sizes.value_head * kFloat));
}

void add_efficient_backward(const KernelCall& call, KernelRequests& requests) {
  const Sizes sizes = backward_sizes(call);
  const Handle copy = requests.request(copied_bytes(tensor(call, 0)));
  add_results(requests, 4);
  const Handle expanded = requests.next_handle();
  add_expanded(sizes, requests);
  const int64_t sum_bytes = sizes.sum_bytes(sizes.queries);
  const Handle temporary = requests.next_handle();
  if (sizes.item_bytes == kFloat) {
    requests.request(sizes.rows() * sizes.queries * sizes.value_head * kFloat);
    requests.request(sum_bytes);
  }
  const Handle first_own = requests.next_handle();
  const Handle delta = requests.request(sum_bytes);
  for (Handle handle = first_own; handle-- > temporary;) requests.release(handle);
  const Handle workspace = requests.request(efficient_workspace_bytes(sizes));
  requests.release(delta);
  requests.release(workspace);
  for (Handle handle = temporary; handle-- > expanded;) requests.release(handle);
  requests.release(copy);
}

void add_flash(const KernelCall& call, KernelRequests& requests) {
  const Sizes sizes = forward_sizes(call);
  add_results(requests, 2);
  const int64_t splits = call.arguments[3].toDouble() == 0 ? count_flash_splits(sizes) : 1;
  if (splits > 1) {
    const int64_t bytes = splits * sizes.sum_bytes(sizes.queries);
    const Handle sums = requests.request(bytes);
    const Handle outputs = requests.request(bytes * sizes.flash_head());
    for (const size_t result : {6, 7}) requests.result(result);
    requests.release(sums);
    requests.release(outputs);
  }
}

void add_flash_backward(const KernelCall& call, KernelRequests& requests) {
  const Sizes sizes = backward_sizes(call);
  const Handle copy = requests.request(copied_bytes(tensor(call, 0)));
  requests.request(copied_bytes(tensor(call, 4)));  // the result of the forward
  add_results(requests, 3);
  const int64_t sum_bytes = sizes.sum_bytes(round_to(sizes.queries, 128));
  requests.request(sum_bytes);
  requests.request(sum_bytes * sizes.flash_head());
  add_expanded(sizes, requests);
  requests.release_all_from(copy);
}

void add_cudnn(const KernelCall& /*call*/, KernelRequests& requests) {
  for (const size_t result : {6, 7, 0, 1}) requests.result(result);  // the seeds come first
}

void add_cudnn_backward(const KernelCall& call, KernelRequests& requests) {
  const Sizes sizes = backward_sizes(call);
  add_results(requests, 3);
  // The queries' gradient in float32, and one number for each query.
  requests.release(requests.request(sizes.sum_bytes(sizes.queries) * (sizes.head + 1)));
}

}  // namespace tidegauge::simulation::attention_memory
