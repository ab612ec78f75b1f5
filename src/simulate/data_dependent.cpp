// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/data_dependent.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "simulate/known_values.h"
#include "simulate/session_state.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {
namespace {

using c10::IValue;

[[noreturn]] void throw_value_unknown(const OpTraits& traits) {
  TORCH_CHECK(false, traits.name, " asks for the value of a simulated tensor", at_line(),
              ", which holds no data. Branch on something else, pass the value as a Python number, "
              "or use `simulate(item=1)` to answer with a constant");
}

c10::Scalar to_scalar(double value, c10::ScalarType type) {
  if (type == at::kBool) return value != 0;
  if (at::isIntegralType(type, false)) return static_cast<int64_t>(value);
  if (at::isComplexType(type)) return c10::complex<double>(value);
  return value;
}

at::Tensor make(c10::IntArrayRef sizes, c10::ScalarType type, c10::Device device) {
  const auto dtype = c10::scalarTypeToTypeMeta(type);
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  auto result = c10::make_intrusive<SimulatedTensor>(
      SimulatedStorage::make(numel * static_cast<int64_t>(dtype.itemsize()), device),
      keys_of(dtype, device), dtype, device);
  result->set_sizes_contiguous(sizes);
  return at::Tensor(std::move(result));
}

int64_t count_selected(int64_t count) {
  return std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(static_cast<double>(count) * policy().mask_fraction)), 0,
      count);
}

/// Column-major, like the real kernels: the indices of one dimension are contiguous.
at::Tensor make_nonzero(int64_t selected, int64_t dimensions, c10::Device device) {
  const at::Tensor result = make({selected, dimensions}, at::kLong, device);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(c10::IntArrayRef({selected, dimensions}),
                                                      c10::IntArrayRef({1, selected}));
  return result;
}

int64_t broadcast_numel(const at::Tensor& a, const at::Tensor& b) {
  int64_t numel = 1;
  for (const int64_t size : at::infer_size(a.sizes(), b.sizes())) numel *= size;
  return numel;
}

/// A simulated tensor with the shape and the values of a real one; other values unchanged.
IValue to_simulated_with_values(const IValue& real, c10::Device device) {
  if (!real.isTensor() || !real.toTensor().defined()) return real;
  const at::Tensor& tensor = real.toTensor();
  at::Tensor result = make(tensor.sizes(), tensor.scalar_type(), device);
  if (!tensor.is_contiguous()) {
    result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  }
  known_values::keep(result, tensor);
  return result;
}

/// For the inverse and the counts of `unique`, which are empty unless requested.
at::Tensor make_if(bool is_wanted, c10::IntArrayRef sizes, c10::Device device) {
  return is_wanted ? make(sizes, at::kLong, device) : make({0}, at::kLong, device);
}

}  // namespace

IValue read_item(const OpTraits& traits, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "a Tensor with ", tensor.numel(),
              " elements cannot be converted to Scalar");
  if (const auto known = known_values::find_item(tensor)) return *known;
  if (!policy().item) throw_value_unknown(traits);
  return to_scalar(*policy().item, tensor.scalar_type());
}

IValue compare(const c10::OperatorHandle& op, const OpTraits& traits,
               std::span<const IValue> arguments) {
  if (known_values::can_follow(traits, arguments)) {
    return known_values::compute(op, traits, arguments).front();
  }
  if (arguments[0].toTensor().sizes() != arguments[1].toTensor().sizes()) return false;
  if (!policy().item) throw_value_unknown(traits);
  return *policy().item != 0;
}

std::vector<IValue> run_dynamic(const c10::OperatorHandle& op, const OpTraits& traits,
                                std::span<const IValue> arguments, c10::Device device) {
  std::vector<IValue> results;
  if (known_values::can_follow(traits, arguments)) {
    for (const IValue& real : known_values::compute(op, traits, arguments)) {
      results.push_back(to_simulated_with_values(real, device));
    }
    return results;
  }
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t numel = self.numel();
  if (traits.name == "aten::nonzero") {
    results.emplace_back(make_nonzero(count_selected(numel), self.dim(), device));
  } else if (traits.name == "aten::masked_select") {
    TORCH_CHECK(arguments[1].toTensor().scalar_type() == at::kBool,
                "masked_select: expected BoolTensor for mask");
    const int64_t selected = count_selected(broadcast_numel(self, arguments[1].toTensor()));
    results.emplace_back(make({selected}, self.scalar_type(), device));
  } else if (traits.name == "aten::_unique" || traits.name == "aten::_unique2") {
    const bool wants_counts = traits.name == "aten::_unique2" && arguments[3].toBool();
    results.emplace_back(make({numel}, self.scalar_type(), device));
    results.emplace_back(make_if(arguments[2].toBool(), self.sizes(), device));
    if (traits.name == "aten::_unique2") {
      results.emplace_back(make_if(wants_counts, {numel}, device));
    }
  } else if (traits.name == "aten::unique_consecutive" && arguments[3].isNone()) {
    results.emplace_back(make({numel}, self.scalar_type(), device));
    results.emplace_back(make_if(arguments[1].toBool(), self.sizes(), device));
    results.emplace_back(make_if(arguments[2].toBool(), {numel}, device));
  } else if (traits.name == "aten::unique_dim") {
    const int64_t count = self.size(arguments[1].toInt());
    results.emplace_back(make(self.sizes(), self.scalar_type(), device));
    results.emplace_back(make_if(arguments[3].toBool(), {count}, device));
    results.emplace_back(make_if(arguments[4].toBool(), {count}, device));
  } else if (traits.name == "aten::repeat_interleave.Tensor" && arguments[1].isInt()) {
    results.emplace_back(make({arguments[1].toInt()}, self.scalar_type(), device));
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, traits.name, " makes a result whose shape depends on data",
                                at_line(), ", and a simulated tensor holds no data. Use an op ",
                                "with a fixed result shape, or run this one outside `simulate`");
  }
  return results;
}

void expand_masks(const at::Tensor& self, IValue& indices) {
  const auto is_mask = [](const at::Tensor& index) {
    return is_simulated(index) &&
           (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
  };
  std::vector<std::optional<at::Tensor>> expanded;
  bool has_masks = false;
  for (const IValue& item : indices.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      expanded.emplace_back();
      continue;
    }
    const at::Tensor& index = item.toTensor();
    if (!is_mask(index)) {
      expanded.emplace_back(index);
      continue;
    }
    has_masks = true;
    const auto first = static_cast<int64_t>(expanded.size());
    const bool has_place = first + index.dim() <= self.dim();
    TORCH_CHECK_INDEX(has_place && self.sizes().slice(first, index.dim()) == index.sizes(),
                      "The shape of the mask ", index.sizes(), " at index ", first,
                      " does not match the shape of the indexed tensor ", self.sizes());
    const auto known = known_values::count_nonzero(index);
    const int64_t selected = known ? *known : count_selected(index.numel());
    const at::Tensor places = make({selected}, at::kLong, as_simulated(index).counted_device());
    for (int64_t i = 0; i < index.dim(); ++i) expanded.emplace_back(places);
  }
  if (!has_masks) return;
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& index : expanded) list.push_back(index);
  indices = list;
}

}  // namespace tidegauge::simulation
