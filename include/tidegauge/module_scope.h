// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge {

/// The forward of one module call, for all entered trackers. Costs next to nothing if there are
/// none. Not copied, not moved: leaves in the thread that entered.
class TIDEGAUGE_API ModuleScope {
 public:
  /// `inputs` are needed for backward hooks, and for the sizes that a MemTracker shows.
  explicit ModuleScope(const torch::nn::Module& module, std::vector<at::Tensor> inputs = {});
  /// Without `finish`, the forward counts as failed.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  /// The forward is over and made `outputs`.
  void finish(const std::vector<at::Tensor>& outputs);

  /// Whether a tracker is entered; if not, a scope need not be shown any tensors.
  static bool is_anybody_watching();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {

template <typename T>
void append_tensors(std::vector<at::Tensor>&, const T&) {}
inline void append_tensors(std::vector<at::Tensor>& all, const at::Tensor& tensor) {
  all.push_back(tensor);
}
template <typename T>
void append_tensors(std::vector<at::Tensor>& all, const std::optional<T>& value) {
  if (value) append_tensors(all, *value);
}
template <typename T>
void append_tensors(std::vector<at::Tensor>& all, const std::vector<T>& values) {
  for (const T& value : values) append_tensors(all, value);
}
template <typename... T>
void append_tensors(std::vector<at::Tensor>& all, const std::tuple<T...>& values) {
  std::apply([&](const T&... value) { (append_tensors(all, value), ...); }, values);
}
inline void append_tensors(std::vector<at::Tensor>& all, torch::nn::AnyValue& value) {
  if (const at::Tensor* tensor = value.try_get<at::Tensor>()) all.push_back(*tensor);
}

/// The tensors in `args`; none if nobody looks at them.
template <typename... Args>
std::vector<at::Tensor> tensors_of(Args&&... args) {
  std::vector<at::Tensor> tensors;
  if (!ModuleScope::is_anybody_watching()) return tensors;
  (append_tensors(tensors, args), ...);
  return tensors;
}

}  // namespace detail

/// Calls `module->forward(args...)` within a ModuleScope. `module` is a holder (torch::nn::Linear),
/// a shared_ptr or a pointer.
template <typename Module, typename... Args>
auto call(Module&& module, Args&&... args) {
  ModuleScope scope(*module, detail::tensors_of(args...));
  using Output = decltype(module->forward(std::forward<Args>(args)...));
  if constexpr (std::is_void_v<Output>) {
    module->forward(std::forward<Args>(args)...);
    scope.finish({});
  } else {
    Output output = module->forward(std::forward<Args>(args)...);
    scope.finish(detail::tensors_of(output));
    return output;
  }
}

/// Likewise for a Sequential and each module in it. `Output`: what the last of them returns.
template <typename Output = at::Tensor, typename... Args>
Output call_sequential(torch::nn::Sequential& modules, Args&&... args) {
  ModuleScope scope(*modules, detail::tensors_of(args...));
  torch::nn::AnyValue value{at::Tensor()};
  bool is_first = true;
  for (torch::nn::AnyModule& module : *modules) {
    ModuleScope inner(*module.ptr(),
                      is_first ? detail::tensors_of(args...) : detail::tensors_of(value));
    value = is_first ? module.any_forward(args...) : module.any_forward(std::move(value));
    is_first = false;
    inner.finish(detail::tensors_of(value));
  }
  scope.finish(detail::tensors_of(value));
  return value.template get<Output>();
}

/// A module holder whose calls are seen by trackers: write `Tracked<torch::nn::Linear> fc` for
/// `torch::nn::Linear fc` and leave the rest of the program as it is.
template <typename Holder>
class Tracked : public Holder {
 public:
  using Holder::Holder;

  template <typename... Args>
  auto operator()(Args&&... args) {
    if constexpr (std::is_same_v<Holder, torch::nn::Sequential>) {
      return call_sequential(*this, std::forward<Args>(args)...);
    } else {
      return call(static_cast<Holder&>(*this), std::forward<Args>(args)...);
    }
  }
};

}  // namespace tidegauge
