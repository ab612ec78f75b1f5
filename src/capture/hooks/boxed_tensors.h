// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace tidegauge {

/// Calls `visit(tensor)` for the tensors in a boxed argument or result, including those in lists.
template <typename Visit>
void visit_tensors(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isInt()) return;  // a list of sizes, which is more common than a list of tensors
      visit_tensors(item, visit);
    }
  }
}

/// Calls `visit(tensor)` for the arguments of an op that is about to run.
template <typename Visit>
void visit_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                     Visit&& visit) {
  for (size_t i = stack.size() - schema.arguments().size(); i < stack.size(); ++i) {
    visit_tensors(stack[i], visit);
  }
}

/// Calls `visit(tensor, position)` for the results of an op that has run.
template <typename Visit>
void visit_results(const c10::FunctionSchema& schema, const torch::jit::Stack& stack,
                   Visit&& visit) {
  const size_t count = schema.returns().size();
  for (size_t i = 0; i < count; ++i) {
    visit_tensors(stack[stack.size() - count + i],
                  [&](const at::Tensor& tensor) { visit(tensor, i); });
  }
}

}  // namespace tidegauge
