// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace tidegauge {

/// Calls `visit(tensor)` for the tensors of a boxed argument or result, also within lists.
template <typename Visit>
void visit_tensors(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList().vec()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) visit_tensors(item, visit);
  }
}

}  // namespace tidegauge
