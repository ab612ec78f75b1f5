// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>

#include <string_view>

#include "capture/compat/scalar_type_name.h"

namespace tidegauge {

/// False if the sizes are symbolic or nested, or if the tensor has no storage: the sizes of a
/// sparse tensor are not those of its parts.
inline bool has_plain_sizes(const c10::TensorImpl* tensor) {
  return tensor != nullptr && tensor->unsafe_storage() && !tensor->has_symbolic_sizes_strides() &&
         !tensor->is_nested();
}

/// The name of a torch.dtype without "torch."; empty if it has no name. A string literal.
inline std::string_view dtype_name(caffe2::TypeMeta dtype) {
  if (!dtype.isScalarType() || dtype.toScalarType() >= c10::ScalarType::Undefined) return {};
  return scalar_type_name(dtype.toScalarType());
}

}  // namespace tidegauge
