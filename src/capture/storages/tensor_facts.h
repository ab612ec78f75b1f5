// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>

#include <string_view>

namespace tidegauge {

/// Symbolic and nested sizes have no plain numbers; those of a sparse tensor are not its parts'.
inline bool has_plain_sizes(const c10::TensorImpl* tensor) {
  return tensor != nullptr && tensor->unsafe_storage() && !tensor->has_symbolic_sizes_strides() &&
         !tensor->is_nested();
}

/// As torch.dtype prints it, without its "torch."; empty if it has no name. Lives for ever.
inline std::string_view dtype_name(caffe2::TypeMeta dtype) {
  if (!dtype.isScalarType() || dtype.toScalarType() >= c10::ScalarType::Undefined) return {};
  return c10::getDtypeNames(dtype.toScalarType()).first;
}

}  // namespace tidegauge
