// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/SmallVector.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidegauge/export.h"
#include "tidegauge/mod_tracker.h"

namespace tidegauge {

namespace detail {
/// True if any tracker is entered.
extern TIDEGAUGE_API std::atomic<bool> is_any_entered;
}  // namespace detail

/// The forward of one module call, for all entered trackers. Nearly free without trackers. Must be
/// destroyed in the thread that created it.
class TIDEGAUGE_API ModuleScope {
 public:
  /// Backward hooks and the input sizes in MemTracker's statistics need `inputs`.
  explicit ModuleScope(const torch::nn::Module& module, at::TensorList inputs = {});
  /// Without `finish`, the forward counts as failed.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  /// The forward returned `outputs`.
  void finish(at::TensorList outputs);

  /// True if any tracker is entered; if not, a scope needs no tensors.
  static bool is_anybody_watching() {
    return detail::is_any_entered.load(std::memory_order_relaxed);
  }

 private:
  void leave_quietly() noexcept;

  const torch::nn::Module& module_;
  uint32_t id_ = 0;
  bool is_bw_ = false;                             // inside a backward: a recomputed forward
  std::shared_ptr<const NnModTrackers> trackers_;  // null: no tracker is entered
  size_t entered_ = 0;                             // how many of them
  std::vector<at::Tensor> inputs_;                 // for the post-forward hooks
};

namespace detail {

using Tensors = c10::SmallVector<at::Tensor, 4>;

template <typename T>
void append_tensors(Tensors&, const T&) {}
inline void append_tensors(Tensors& all, const at::Tensor& tensor) { all.push_back(tensor); }
template <typename T>
void append_tensors(Tensors& all, const std::optional<T>& value) {
  if (value) append_tensors(all, *value);
}
template <typename T>
void append_tensors(Tensors& all, const std::vector<T>& values) {
  for (const T& value : values) append_tensors(all, value);
}
template <typename... T>
void append_tensors(Tensors& all, const std::tuple<T...>& values) {
  std::apply([&](const T&... value) { (append_tensors(all, value), ...); }, values);
}

/// The tensors in `args`; none if no tracker is entered.
template <typename... Args>
Tensors tensors_of(Args&&... args) {
  Tensors tensors;
  if (ModuleScope::is_anybody_watching()) (append_tensors(tensors, args), ...);
  return tensors;
}

/// The tensor in `value`, without another reference; valid until `value` changes.
inline at::TensorList tensor_in(torch::nn::AnyValue& value) {
  if (!ModuleScope::is_anybody_watching()) return {};
  const at::Tensor* tensor = value.try_get<at::Tensor>();
  return {tensor, tensor != nullptr ? size_t{1} : size_t{0}};
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

/// The same for a Sequential and each module in it. `Output`: the return type of the last one.
template <typename Output = at::Tensor, typename... Args>
Output call_sequential(torch::nn::Sequential& modules, Args&&... args) {
  if (modules->is_empty()) return modules->template forward<Output>(args...);  // throws
  detail::Tensors arguments = detail::tensors_of(args...);
  at::TensorList tensors = arguments;
  ModuleScope scope(*modules, tensors);
  std::optional<torch::nn::AnyValue> value;
  for (torch::nn::AnyModule& module : *modules) {
    ModuleScope inner(*module.ptr(), tensors);
    arguments.clear();  // so that they do not live longer than without tracking
    value = value ? module.any_forward(std::move(*value)) : module.any_forward(args...);
    tensors = detail::tensor_in(*value);
    inner.finish(tensors);
  }
  scope.finish(tensors);
  return value->template get<Output>();
}

/// A module holder whose calls are tracked: write `Tracked<torch::nn::Linear> fc` instead of
/// `torch::nn::Linear fc` and leave the rest of the program unchanged.
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
