// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/corrections.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace tidegauge::simulation {
namespace {

using c10::IValue;

std::vector<int64_t> strides_in(at::MemoryFormat format, c10::IntArrayRef sizes) {
  if (format == at::MemoryFormat::ChannelsLast) return c10::get_channels_last_strides_2d(sizes);
  if (format == at::MemoryFormat::ChannelsLast3d) return c10::get_channels_last_strides_3d(sizes);
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

void lay_out(const at::Tensor& tensor, at::MemoryFormat format) {
  if (!tensor.defined()) return;
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes().vec(),
                                                      strides_in(format, tensor.sizes()));
}

/// On the CPU, the backend library decides whether a channels-last input or weight makes the result
/// channels last. For other devices the meta kernel is right. 1-d convolutions have no such layout.
void lay_out_convolution(const at::Tensor& input, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias,
                         at::OptionalSymIntArrayRef bias_sizes, std::span<const IValue> options,
                         std::span<const IValue> results) {
  if (!input.device().is_cpu() || weight.dim() < 4) return;
  const auto backend = at::native::select_conv_backend(
      input, weight, bias, options[0].toSymIntVector(), options[1].toSymIntVector(),
      options[2].toSymIntVector(), options[3].toBool(), options[4].toSymIntVector(),
      options[5].toSymInt(), bias_sizes);
  const auto format = at::native::_determine_backend_memory_format(input, weight, backend);
  for (const IValue& result : results) lay_out(result.toTensor(), format);
}

void correct_convolution(std::span<const IValue> arguments, std::span<const IValue> results) {
  lay_out_convolution(arguments[0].toTensor(), arguments[1].toTensor(),
                      arguments[2].toOptional<at::Tensor>(), std::nullopt, arguments.subspan(3),
                      results);
}

void correct_convolution_backward(std::span<const IValue> arguments,
                                  std::span<const IValue> results) {
  std::vector<c10::SymInt> bias;
  if (!arguments[3].isNone()) bias = arguments[3].toSymIntVector();
  lay_out_convolution(
      arguments[1].toTensor(), arguments[2].toTensor(), std::nullopt,
      arguments[3].isNone() ? at::OptionalSymIntArrayRef() : at::OptionalSymIntArrayRef(bias),
      arguments.subspan(4), results.first(2));
}

/// The real kernel reduces in place: its scalar result keeps the storage of all elements.
void correct_loss(std::span<const IValue> arguments, std::span<const IValue> results) {
  if (arguments[2].toInt() == at::Reduction::None) return;
  int64_t numel = 1;
  for (const int64_t size :
       at::infer_size(arguments[0].toTensor().sizes(), arguments[1].toTensor().sizes())) {
    numel *= size;
  }
  const at::Tensor& loss = results[0].toTensor();
  const int64_t size_bytes = numel * static_cast<int64_t>(loss.itemsize());
  if (size_bytes > static_cast<int64_t>(loss.storage().nbytes())) {
    loss.storage().unsafeGetStorageImpl()->set_nbytes(size_bytes);
  }
}

void set_dtype(const at::Tensor& tensor, at::ScalarType dtype) {
  if (!tensor.defined() || tensor.scalar_type() == dtype) return;
  const auto size_bytes = tensor.numel() * static_cast<int64_t>(c10::elementSize(dtype));
  tensor.storage().unsafeGetStorageImpl()->set_nbytes(size_bytes);
  tensor.unsafeGetTensorImpl()->set_storage_and_dtype(tensor.storage(),
                                                      c10::scalarTypeToTypeMeta(dtype));
}

/// On the CPU, the result has the layout of the input; not every version of the meta kernel agrees.
void keep_layout(const at::Tensor& input, const at::Tensor& result) {
  if (input.device().is_cpu()) lay_out(result, input.suggest_memory_format());
}

/// If the parameters have a different dtype from the input, the statistics have the parameters'.
void correct_group_norm(std::span<const IValue> arguments, std::span<const IValue> results) {
  keep_layout(arguments[0].toTensor(), results[0].toTensor());
  for (const IValue& parameter : arguments.subspan(1, 2)) {
    if (!parameter.isTensor() || !parameter.toTensor().defined()) continue;
    for (const IValue& statistic : results.subspan(1)) {
      set_dtype(statistic.toTensor(), parameter.toTensor().scalar_type());
    }
    return;
  }
}

/// The gradient of the input has the dtype of the input.
void correct_group_norm_backward(std::span<const IValue> arguments,
                                 std::span<const IValue> results) {
  keep_layout(arguments[1].toTensor(), results[0].toTensor());
  set_dtype(results[0].toTensor(), arguments[1].toTensor().scalar_type());
}

/// The seeds of dropout stay on the host.
void correct_efficient_attention(std::span<const IValue> arguments,
                                 std::span<const IValue> results) {
  if (arguments[5].toDouble() == 0) return;
  for (const IValue& seed : results.subspan(2)) {
    seed.toTensor().storage().unsafeGetStorageImpl()->set_nbytes(0);
  }
}

}  // namespace

Correction find_correction(std::string_view op) {
  static const auto* corrections = new std::unordered_map<std::string_view, Correction>{
      {"aten::convolution", &correct_convolution},
      {"aten::convolution_backward", &correct_convolution_backward},
      {"aten::native_group_norm", &correct_group_norm},
      {"aten::native_group_norm_backward", &correct_group_norm_backward},
      {"aten::_scaled_dot_product_efficient_attention", &correct_efficient_attention},
      {"aten::mse_loss", &correct_loss},
      {"aten::smooth_l1_loss", &correct_loss},
  };
  const auto it = corrections->find(op);
  return it != corrections->end() ? it->second : nullptr;
}

}  // namespace tidegauge::simulation
