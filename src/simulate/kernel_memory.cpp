// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/kernel_memory.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <unordered_map>

#include "simulate/attention_memory.h"
#include "simulate/list_memory.h"
#include "simulate/product_memory.h"
#include "simulate/reduction_memory.h"
#include "simulate/sort_memory.h"

namespace tidegauge::simulation {
namespace {

using c10::IValue;
using Handle = KernelRequests::Handle;

constexpr int64_t kFloat = 4;

const at::Tensor& tensor(const IValue& value) { return value.toTensor(); }
int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(tensor.itemsize());
}

/// All dimensions, if the argument names none.
uint64_t read_dimensions(const IValue& argument, int64_t count) {
  if (argument.isNone()) return ~uint64_t{0};
  uint64_t bits = 0;
  const auto add = [&](int64_t dimension) {
    if (count > 0) bits |= uint64_t{1} << ((dimension % count + count) % count);
  };
  if (argument.isInt()) add(argument.toInt());
  if (argument.isIntList()) {
    for (const int64_t dimension : argument.toIntVector()) add(dimension);
  }
  return bits != 0 ? bits : ~uint64_t{0};
}

/// Sums and means of half-precision numbers are computed in float32, eight at once.
Reduction sum_of(const at::Tensor& input) {
  const auto item_bytes = static_cast<int64_t>(input.itemsize());
  return {std::max(kFloat, item_bytes), item_bytes == 2 ? 8 : 4};
}

void add_sum(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  const at::Tensor& input = tensor(call.arguments[0]);
  const uint64_t reduced =
      call.arguments.size() > 2 ? read_dimensions(call.arguments[1], input.dim()) : ~uint64_t{0};
  add_reduction(input, tensor(call.results[0]), reduced, sum_of(input), requests);
}

void add_norm(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  const at::Tensor& input = tensor(call.arguments[0]);
  add_reduction(input, tensor(call.results[0]), read_dimensions(call.arguments[2], input.dim()),
                {kFloat, 4}, requests);
}

/// The largest or smallest element, in the dtype of the input.
void add_extreme(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  const at::Tensor& input = tensor(call.arguments[0]);
  const uint64_t reduced =
      call.arguments.size() > 1 ? read_dimensions(call.arguments[1], input.dim()) : ~uint64_t{0};
  add_reduction(input, tensor(call.results[0]), reduced,
                {static_cast<int64_t>(input.itemsize()), 4}, requests);
}

/// A loss is computed for each element and then reduced.
void add_loss(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  if (call.arguments[2].toInt() == at::Reduction::None) return;
  const at::Tensor& input = tensor(call.arguments[0]);
  const Handle losses = requests.request(bytes_of(input));
  add_reduction(input, tensor(call.results[0]), ~uint64_t{0}, sum_of(input), requests);
  requests.release(losses);
}

/// log_sigmoid of the input, and the losses.
void add_cross_entropy_of_logits(const KernelCall& call, KernelRequests& requests) {
  const at::Tensor& target = tensor(call.arguments[1]);
  const Handle log_sigmoid = requests.request(bytes_of(tensor(call.arguments[0])));
  if (const IValue& weight = call.arguments[3]; weight.isTensor() && tensor(weight).defined()) {
    const Handle less_one = requests.request(bytes_of(tensor(weight)));
    const Handle log_weight = requests.request(bytes_of(target));
    requests.release(less_one);
    requests.release(log_weight);
  }
  if (call.arguments[4].toInt() == at::Reduction::None) {
    requests.result(0);
    return requests.release(log_sigmoid);
  }
  const Handle losses = requests.request(bytes_of(target));
  requests.result(0);
  add_reduction(target, tensor(call.results[0]), ~uint64_t{0}, sum_of(target), requests);
  requests.release(losses);
  requests.release(log_sigmoid);
}

/// Makes its results in this order.
template <size_t... positions>
void add_in_order(const KernelCall& /*call*/, KernelRequests& requests) {
  (requests.result(positions), ...);
}

/// Copies of those that are not contiguous.
void add_copies(std::span<const IValue> arguments, std::initializer_list<size_t> positions,
                KernelRequests& requests) {
  for (const size_t position : positions) {
    if (!arguments[position].isTensor()) continue;
    const at::Tensor& each = tensor(arguments[position]);
    if (each.defined() && !each.is_contiguous()) requests.request(bytes_of(each));
  }
}

/// The kernel's formula needs the product of the gradient and the result.
void add_softmax_backward(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  const Handle first = requests.next_handle();
  requests.request(bytes_of(tensor(call.results[0])));
  add_copies(call.arguments, {0, 1}, requests);
  requests.release_all_from(first);
}

/// Copies arguments before it makes its results.
template <size_t... positions>
void add_copies_first(const KernelCall& call, KernelRequests& requests) {
  const Handle copies = requests.next_handle();
  add_copies(call.arguments, {positions...}, requests);
  for (size_t result = 0; result < call.results.size(); ++result) requests.result(result);
  requests.release_all_from(copies);
}

/// Copies an argument after it has made its results.
void add_copy_last(const KernelCall& call, KernelRequests& requests) {
  for (size_t result = 0; result < call.results.size(); ++result) requests.result(result);
  const Handle copies = requests.next_handle();
  add_copies(call.arguments, {0}, requests);
  requests.release_all_from(copies);
}

/// A number as a tensor.
void add_number(const KernelCall& /*call*/, KernelRequests& requests) {
  requests.result(0);
  requests.release(requests.request(sizeof(double)));
}

/// Gradients of one index: sorts the positions in the result, to add up those that are equal.
void add_index_put(const KernelCall& call, KernelRequests& requests) {
  const auto indices = call.arguments[1].toListRef();
  if (!call.arguments[3].toBool()) return;
  const at::Tensor* index = nullptr;
  for (const IValue& each : indices) {
    if (!each.isTensor() || !tensor(each).defined()) continue;
    if (index != nullptr) return;
    index = &tensor(each);
  }
  if (index == nullptr || index->scalar_type() != at::kLong || index->numel() == 0) return;
  const int64_t index_bytes = bytes_of(*index);
  const Handle remainders = requests.request(index_bytes);
  const Handle positions = requests.request(index_bytes);
  requests.release(remainders);
  requests.request(index_bytes);
  const Handle order = requests.request(index_bytes);
  const Handle range = requests.request(index_bytes);
  const auto rows = static_cast<uint64_t>(std::max<int64_t>(tensor(call.arguments[0]).size(0), 1));
  requests.release(requests.request(sort_pairs_bytes(index->numel(), sizeof(int64_t),
                                                     static_cast<int64_t>(std::bit_width(rows)))));
  requests.release(range);
  for (Handle handle = order + 1; handle-- > positions;) requests.release(handle);
}

/// Scale and shift of each channel of each image.
void add_group_norm(const KernelCall& call, KernelRequests& requests) {
  for (const size_t result : {0, 1, 2}) requests.result(result);
  const int64_t images = call.arguments[3].toInt(), groups = call.arguments[6].toInt();
  const int64_t channels = images * call.arguments[4].toInt() * kFloat;
  const bool has_statistics = tensor(call.results[1]).itemsize() < kFloat;
  const Handle first = requests.request(has_statistics ? images * groups * kFloat : 0);
  requests.request(has_statistics ? images * groups * kFloat : 0);
  const Handle scale = requests.request(channels);
  requests.request(channels);
  requests.release_all_from(scale);
  for (Handle handle = scale; handle-- > first;) requests.release(handle);
}

void add_group_norm_backward(const KernelCall& call, KernelRequests& requests) {
  for (const size_t result : {0, 1, 2}) requests.result(result);
  const int64_t images = call.arguments[5].toInt(), groups = call.arguments[8].toInt();
  const int64_t channels = images * call.arguments[6].toInt() * kFloat;
  const Handle first = requests.request(channels);
  requests.request(channels);
  const Handle means = requests.request(images * groups * kFloat);
  requests.request(images * groups * kFloat);
  const Handle scales = requests.request(channels);
  requests.release(means + 1);
  requests.release(means);
  requests.release(scales);
  requests.release(first + 1);
  requests.release(first);
}

void add_convolution_backward(const KernelCall& call, KernelRequests& requests) {
  const Handle copies = requests.next_handle();
  if (tensor(call.arguments[1]).is_contiguous()) add_copies(call.arguments, {0}, requests);
  const Handle end = requests.next_handle();
  for (const size_t result : {0, 1, 2}) requests.result(result);
  const at::Tensor& bias = tensor(call.results[2]);
  const at::Tensor& gradient = tensor(call.arguments[0]);
  if (bias.defined()) add_reduction(gradient, bias, ~uint64_t{2}, sum_of(gradient), requests);
  for (Handle copy = end; copy-- > copies;) requests.release(copy);
}

/// Up to this number of indices, a kernel without sorting is used.
constexpr int64_t kMostUnsorted = 3072;

/// Sorts the indices, and sums the gradients of equal ones in parts of at most ten.
void add_sorted_embedding_backward(const KernelCall& call, int64_t words,
                                   KernelRequests& requests) {
  const at::Tensor& indices = tensor(call.arguments[1]);
  const int64_t count = indices.numel();
  const int64_t index_bytes = bytes_of(indices);
  const auto item_bytes = static_cast<int64_t>(indices.itemsize());
  const Handle sorted = requests.request(index_bytes);
  requests.request(index_bytes);
  const Handle range = requests.request(index_bytes);
  requests.release(requests.request(sort_pairs_bytes(
      count, item_bytes, static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(words))))));
  requests.release(range);
  requests.result(0);
  const int64_t segments = std::min(count, words);
  const int64_t parts = segments + count / 10;
  requests.request(index_bytes);
  requests.request(sizeof(int64_t));
  const Handle unique = requests.request(index_bytes);
  requests.release(requests.request(unique_bytes(count)));
  requests.release(unique);
  const int64_t segment_bytes = segments * item_bytes;
  requests.request(segment_bytes);
  requests.request(segment_bytes);
  requests.release(requests.request(scan_bytes(segments)));
  const Handle last = requests.request(sizeof(int64_t));
  const int64_t width = tensor(call.results[0]).numel() / std::max<int64_t>(words, 1);
  requests.request(parts * item_bytes);
  requests.request(parts * ((width + 31) / 32 * 32) * kFloat);
  requests.release(last + 2);
  requests.release(last + 1);
  requests.release(last);
  for (Handle handle = last; handle-- > sorted;) {
    const bool is_over = handle == range || handle == range + 1 || handle == unique ||
                         handle == unique + 1 || handle == last - 1;
    if (!is_over) requests.release(handle);
  }
}

void add_embedding_backward(const KernelCall& call, KernelRequests& requests) {
  const Handle copies = requests.next_handle();
  add_copies(call.arguments, {0, 1}, requests);
  const Handle end = requests.next_handle();
  const int64_t count = tensor(call.arguments[1]).numel();
  const bool has_padding = call.arguments[3].toInt() >= 0, is_scaled = call.arguments[4].toBool();
  if (count == 0 || (count <= kMostUnsorted && !has_padding && !is_scaled)) {
    requests.result(0);
  } else {
    add_sorted_embedding_backward(call, call.arguments[2].toInt(), requests);
  }
  for (Handle copy = end; copy-- > copies;) requests.release(copy);
}

/// Of sums and means; the largest element of a bag needs no sorting.
void add_embedding_bag_backward(const KernelCall& call, KernelRequests& requests) {
  constexpr int64_t kMax = 2;
  if (call.arguments[8].toInt() == kMax || tensor(call.arguments[1]).numel() == 0) return;
  const Handle copies = requests.next_handle();
  add_copies(call.arguments, {0}, requests);
  const Handle end = requests.next_handle();
  add_sorted_embedding_backward(call, call.arguments[6].toInt(), requests);
  for (Handle copy = end; copy-- > copies;) requests.release(copy);
}

}  // namespace

KernelMemory find_kernel_memory(std::string_view op) {
  static const auto* rows = new std::unordered_map<std::string_view, KernelMemory>{
      {"aten::mm", &product_memory::add_mm},
      {"aten::addmm", &product_memory::add_addmm},
      {"aten::addmm_", &product_memory::add_addmm},
      {"aten::bmm", &product_memory::add_bmm},
      {"aten::baddbmm", &product_memory::add_baddbmm},
      {"aten::baddbmm_", &product_memory::add_baddbmm},
      {"aten::mv", &product_memory::add_vector_product},
      {"aten::addmv", &product_memory::add_vector_product},
      {"aten::dot", &product_memory::add_vector_product},
      {"aten::sum", &add_sum},
      {"aten::sum.dim_IntList", &add_sum},
      {"aten::mean", &add_sum},
      {"aten::mean.dim", &add_sum},
      {"aten::linalg_vector_norm", &add_norm},
      {"aten::max", &add_extreme},
      {"aten::min", &add_extreme},
      {"aten::amax", &add_extreme},
      {"aten::amin", &add_extreme},
      {"aten::mse_loss", &add_loss},
      {"aten::smooth_l1_loss", &add_loss},
      {"aten::_softmax_backward_data", &add_softmax_backward},
      {"aten::native_layer_norm", &add_copies_first<0>},
      {"aten::native_layer_norm_backward", &add_copies_first<0, 1>},
      {"aten::_fused_rms_norm", &add_copies_first<0>},
      {"aten::_fused_rms_norm_backward", &add_copies_first<0, 1>},
      {"aten::embedding", &add_copies_first<1>},
      {"aten::topk", &add_copy_last},
      {"aten::native_dropout", &add_in_order<1, 0>},
      {"aten::binary_cross_entropy_with_logits", &add_cross_entropy_of_logits},
      {"aten::_embedding_bag", &add_in_order<2, 1, 0, 3>},
      {"aten::_embedding_bag_backward", &add_embedding_bag_backward},
      {"aten::upsample_nearest2d_backward", &add_copy_last},
      {"aten::pow.Scalar", &add_number},
      {"aten::_index_put_impl_", &add_index_put},
      {"aten::native_group_norm", &add_group_norm},
      {"aten::native_group_norm_backward", &add_group_norm_backward},
      {"aten::convolution_backward", &add_convolution_backward},
      {"aten::embedding_dense_backward", &add_embedding_backward},
      {"aten::_chunk_cat", &list_memory::add_chunk_cat},
      {"aten::_chunk_cat.out", &list_memory::add_chunk_cat},
      {"aten::split_with_sizes_copy.out", &list_memory::add_split_copy},
      {"fsdp::chunk_cat", &list_memory::add_chunk_cat},
      {"fsdp::chunk_cat_mixed_dtype", &list_memory::add_chunk_cat},
      {"fsdp::split_with_sizes_copy", &list_memory::add_split_copy},
      {"aten::_foreach_norm.Scalar", &list_memory::add_norms},
      {"aten::_scaled_dot_product_efficient_attention", &attention_memory::add_efficient},
      {"aten::_scaled_dot_product_efficient_attention_backward",
       &attention_memory::add_efficient_backward},
      {"aten::_scaled_dot_product_flash_attention", &attention_memory::add_flash},
      {"aten::_scaled_dot_product_flash_attention_backward", &attention_memory::add_flash_backward},
      {"aten::_scaled_dot_product_cudnn_attention", &attention_memory::add_cudnn},
      {"aten::_scaled_dot_product_cudnn_attention_backward", &attention_memory::add_cudnn_backward},
  };
  const auto it = rows->find(op);
  return it != rows->end() ? it->second : nullptr;
}

}  // namespace tidegauge::simulation
