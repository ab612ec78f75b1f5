// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/checks.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/index.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {
namespace {

using c10::IValue;
using Arguments = std::span<const IValue>;
using Schema = c10::FunctionSchema;

const at::Tensor& tensor(Arguments arguments, int position) {
  static const auto* none = new at::Tensor;
  return arguments[position].isTensor() ? arguments[position].toTensor() : *none;
}

const std::string& argument_name(const Schema& schema, int position) {
  return schema.arguments()[position].name();
}

/// Runs several checks.
template <Check... kChecks>
void all(const Schema& schema, Arguments arguments) {
  (kChecks(schema, arguments), ...);
}

void check_same_dtype(const Schema& schema, Arguments arguments, int first, int other) {
  const at::Tensor& one = tensor(arguments, first);
  const at::Tensor& two = tensor(arguments, other);
  TORCH_CHECK(!one.defined() || !two.defined() || one.scalar_type() == two.scalar_type(),
              schema.name(), ": ", argument_name(schema, first), " and ",
              argument_name(schema, other), " must have the same dtype, but got ",
              one.scalar_type(), " and ", two.scalar_type());
}

template <int kFirst, int... kOthers>
void same_dtype(const Schema& schema, Arguments arguments) {
  (check_same_dtype(schema, arguments, kFirst, kOthers), ...);
}

template <int kPosition, at::ScalarType kDtype, at::ScalarType kOther>
void has_dtype(const Schema& schema, Arguments arguments) {
  const at::ScalarType dtype = tensor(arguments, kPosition).scalar_type();
  TORCH_CHECK(dtype == kDtype || dtype == kOther, schema.name(), ": expected ",
              argument_name(schema, kPosition), " of dtype ", kDtype,
              kDtype == kOther ? std::string() : c10::str(" or ", kOther), ", but got ", dtype);
}

template <int kPosition>
void is_index(const Schema& schema, Arguments arguments) {
  has_dtype<kPosition, at::kLong, at::kInt>(schema, arguments);
}
template <int kPosition>
void is_long(const Schema& schema, Arguments arguments) {
  has_dtype<kPosition, at::kLong, at::kLong>(schema, arguments);
}

template <int kPosition>
void is_vector(const Schema& schema, Arguments arguments) {
  const at::Tensor& index = tensor(arguments, kPosition);
  TORCH_CHECK_INDEX(index.dim() <= 1, schema.name(), ": ", argument_name(schema, kPosition),
                    " is supposed to be a vector, but has shape ", index.sizes());
}

template <int kDim>
void dim_exists(const Schema&, Arguments arguments) {
  at::maybe_wrap_dim(arguments[kDim].toInt(), tensor(arguments, 0).dim());
}

/// A normalization's parameters have the dtype of its input, or float if the input is narrower.
template <int... kParameters>
void mixes_with_floats(const Schema& schema, Arguments arguments) {
  const at::ScalarType input = tensor(arguments, 0).scalar_type();
  std::optional<at::ScalarType> first;
  for (const int position : {kParameters...}) {
    const at::Tensor& parameter = tensor(arguments, position);
    if (!parameter.defined()) continue;
    const at::ScalarType dtype = parameter.scalar_type();
    if (!first) first = dtype;
    const bool is_mixed = at::isReducedFloatingType(input) && dtype == at::kFloat;
    TORCH_CHECK(dtype == *first && (dtype == input || is_mixed), schema.name(),
                ": mixed dtypes: the input is ", input, " and ", argument_name(schema, position),
                " is ", dtype,
                " (expected the same dtype, or Float parameters with a narrower input)");
  }
}

/// The dtype of the result can be cast to that of the first argument, which receives it.
template <int... kOthers>
void casts_in_place(const Schema&, Arguments arguments) {
  at::native::ResultTypeState state;
  for (const int position : {0, kOthers...}) {
    state = at::native::update_result_type_state(tensor(arguments, position), state);
  }
  const at::ScalarType result = at::native::result_type(state);
  const at::ScalarType wanted = tensor(arguments, 0).scalar_type();
  TORCH_CHECK(c10::canCast(result, wanted), "result type ", result,
              " can't be cast to the desired output type ", wanted);
}

template <int kOther>
void fits_in_place(const Schema&, Arguments arguments) {
  const at::IntArrayRef sizes = tensor(arguments, 0).sizes();
  const auto broadcast = at::infer_size(sizes, tensor(arguments, kOther).sizes());
  TORCH_CHECK(sizes == at::IntArrayRef(broadcast), "output with shape ", sizes,
              " doesn't match the broadcast shape ", broadcast);
}

void indexes_source(const Schema& schema, Arguments arguments) {
  const at::Tensor& self = tensor(arguments, 0);
  const at::Tensor& source = tensor(arguments, 3);
  const int64_t count = tensor(arguments, 2).numel();
  const int64_t dim = at::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  std::vector<int64_t> expected = self.sizes().vec();
  if (!expected.empty()) expected[dim] = count;
  const bool fits = self.dim() > 1 ? source.sizes() == at::IntArrayRef(expected)
                                   : source.dim() <= 1 && source.numel() == count;
  TORCH_CHECK(fits, schema.name(),
              ": the shape of source must match that of self, except for one row per index in ",
              "dimension ", dim, ". Got self.shape = ", self.sizes(),
              ", source.shape = ", source.sizes(), " and ", count, " indices");
}

void has_value_per_index(const Schema& schema, Arguments arguments) {
  const int64_t index = tensor(arguments, 1).numel();
  const int64_t source = tensor(arguments, 2).numel();
  TORCH_CHECK_INDEX(index == source, schema.name(), ": expected source and index to have the same ",
                    "number of elements, but got ", source, " and ", index);
}

/// A single value may have any dtype: torch turns that call into a fill. Masks have already been
/// replaced by indices.
void values_fit_indices(const Schema& schema, Arguments arguments) {
  const bool is_filled = tensor(arguments, 2).numel() == 1 && !arguments[3].toBool();
  if (!is_filled) same_dtype<0, 2>(schema, arguments);
  const c10::impl::ExcludeDispatchKeyGuard guard(dispatch_key::kBoth);
  c10::List<std::optional<at::Tensor>> indices;
  for (const IValue& index : arguments[1].toListRef()) {
    const bool is_given = index.isTensor() && index.toTensor().defined();
    indices.push_back(is_given ? std::optional(to_meta(index.toTensor())) : std::nullopt);
  }
  if (indices.empty()) return;  // a mask without dimensions selects all
  const at::Tensor place = at::index(to_meta(tensor(arguments, 0)), indices);
  const at::IntArrayRef values = tensor(arguments, 2).sizes();
  TORCH_CHECK(at::is_expandable_to(values, place.sizes()), "shape mismatch: value tensor of shape ",
              values, " cannot be broadcast to indexing result of shape ", place.sizes());
}

void masks_all(const Schema&, Arguments arguments) {
  const at::Tensor& self = tensor(arguments, 0);
  const at::Tensor& mask = tensor(arguments, 1);
  TORCH_CHECK(at::is_expandable_to(mask.sizes(), self.sizes()), "The mask of shape ", mask.sizes(),
              " cannot be expanded to the shape ", self.sizes(), " of the masked tensor");
}

void check_slice(const at::Tensor& source, const at::Tensor& slice) {
  TORCH_CHECK(source.sizes() == slice.sizes(),
              "expected src to have a size equal to the slice of self. src size = ", source.sizes(),
              ", slice size = ", slice.sizes());
}
void is_slice(const Schema&, Arguments arguments) {
  const c10::impl::ExcludeDispatchKeyGuard guard(dispatch_key::kBoth);
  check_slice(tensor(arguments, 1),
              to_meta(tensor(arguments, 0))
                  .slice(arguments[2].toInt(), arguments[3].toOptional<int64_t>(),
                         arguments[4].toOptional<int64_t>(), arguments[5].toInt()));
}
void is_selected(const Schema&, Arguments arguments) {
  const c10::impl::ExcludeDispatchKeyGuard guard(dispatch_key::kBoth);
  check_slice(tensor(arguments, 1),
              to_meta(tensor(arguments, 0)).select(arguments[2].toInt(), arguments[3].toInt()));
}

/// The view does not reach beyond the end of the storage.
void is_within_storage(const Schema& schema, Arguments arguments) {
  const at::Tensor& self = tensor(arguments, 0);
  const std::vector<int64_t> sizes = arguments[1].toIntVector();
  const std::vector<int64_t> strides = arguments[2].toIntVector();
  const int64_t offset = arguments[3].isNone() ? self.storage_offset() : arguments[3].toInt();
  if (sizes.size() != strides.size()) return;  // the meta kernel rejects this
  const size_t needed = at::detail::computeStorageNbytes(sizes, strides, self.itemsize(), offset);
  TORCH_CHECK(needed <= self.storage().nbytes(), schema.name(), ": sizes ", sizes, ", strides ",
              strides, " and offset ", offset, " need a storage of ", needed,
              " bytes, but this one has ", self.storage().nbytes());
}

}  // namespace

Check find_check(std::string_view op) {
  static const auto* checks = new std::unordered_map<std::string_view, Check>{
      {"aten::mm", &same_dtype<0, 1>},
      {"aten::mv", &same_dtype<0, 1>},
      {"aten::addmm", &same_dtype<0, 1, 2>},
      {"aten::addmm_", &same_dtype<0, 1, 2>},
      {"aten::addbmm", &same_dtype<0, 1, 2>},
      {"aten::addbmm_", &same_dtype<0, 1, 2>},
      {"aten::addmv", &same_dtype<0, 1, 2>},
      {"aten::addmv_", &same_dtype<0, 1, 2>},
      {"aten::convolution", &same_dtype<0, 1, 2>},
      {"aten::linalg_cross", &same_dtype<0, 1>},
      {"aten::_cdist_forward", &same_dtype<0, 1>},
      {"aten::complex", &same_dtype<0, 1>},
      {"aten::polar", &same_dtype<0, 1>},
      {"aten::grid_sampler_2d", &same_dtype<0, 1>},
      {"aten::grid_sampler_3d", &same_dtype<0, 1>},
      {"aten::binary_cross_entropy", &same_dtype<0, 1, 2>},
      {"aten::nll_loss_forward", &all<has_dtype<1, at::kLong, at::kByte>, same_dtype<0, 2>>},
      {"aten::nll_loss2d_forward", &all<has_dtype<1, at::kLong, at::kByte>, same_dtype<0, 2>>},
      {"aten::native_layer_norm", &mixes_with_floats<2, 3>},
      {"aten::native_group_norm", &mixes_with_floats<1, 2>},
      {"aten::native_batch_norm", &mixes_with_floats<1, 2, 3, 4>},
      {"aten::index_add", &all<same_dtype<0, 3>, is_index<2>, indexes_source>},
      {"aten::index_add_", &all<same_dtype<0, 3>, is_index<2>, indexes_source>},
      {"aten::index_reduce", &all<same_dtype<0, 3>, is_index<2>, is_vector<2>, indexes_source>},
      {"aten::index_reduce_", &all<same_dtype<0, 3>, is_index<2>, is_vector<2>, indexes_source>},
      {"aten::index_copy", &all<same_dtype<0, 3>, is_long<2>, indexes_source>},
      {"aten::index_copy_", &all<same_dtype<0, 3>, is_long<2>, indexes_source>},
      {"aten::index_select", &all<is_index<2>, is_vector<2>>},
      {"aten::index_fill.int_Scalar", &is_long<2>},
      {"aten::index_fill.int_Tensor", &is_long<2>},
      {"aten::index_fill_.int_Scalar", &is_long<2>},
      {"aten::index_fill_.int_Tensor", &is_long<2>},
      {"aten::index_put", &values_fit_indices},
      {"aten::index_put_", &values_fit_indices},
      {"aten::_index_put_impl_", &values_fit_indices},
      {"aten::put", &all<same_dtype<0, 2>, is_long<1>, has_value_per_index>},
      {"aten::put_", &all<same_dtype<0, 2>, is_long<1>, has_value_per_index>},
      {"aten::masked_scatter_", &masks_all},
      {"aten::slice_scatter", &is_slice},
      {"aten::select_scatter", &is_selected},
      {"aten::as_strided", &is_within_storage},
      {"aten::as_strided_", &is_within_storage},
      {"aten::_softmax", &dim_exists<1>},
      {"aten::_log_softmax", &dim_exists<1>},
      {"aten::sort", &dim_exists<1>},
      {"aten::sort.stable", &dim_exists<2>},
      {"aten::mul_.Tensor", &casts_in_place<1>},
      {"aten::addcmul_", &casts_in_place<1, 2>},
      {"aten::addcdiv_", &casts_in_place<1, 2>},
      {"aten::pow_.Tensor", &fits_in_place<1>},
      {"aten::eq_.Tensor", &fits_in_place<1>},
      {"aten::ne_.Tensor", &fits_in_place<1>},
  };
  const auto it = checks->find(op);
  return it != checks->end() ? it->second : nullptr;
}

}  // namespace tidegauge::simulation
