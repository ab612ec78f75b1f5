// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/typed_ops.h"

#include <ATen/Operators.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "capture/hooks/op_hook.h"
#include "capture/hooks/op_watch.h"
#include "capture/compat/torch_thread.h"
#include "tidegauge/errors.h"

namespace tidegauge::op_hook {
namespace {

template <typename Argument>
void add_argument(OpWatch& watch, const Argument& argument) {
  if constexpr (std::is_same_v<Argument, at::Tensor>) {
    watch.add_argument(argument);
  } else if constexpr (std::is_same_v<Argument, std::optional<at::Tensor>>) {
    if (argument) watch.add_argument(*argument);
  } else if constexpr (std::is_same_v<Argument, at::TensorList>) {
    for (const at::Tensor& tensor : argument) watch.add_argument(tensor);
  }
}

template <typename First, typename... Rest>
bool knows_first(const First& argument, const Rest&...) {
  if constexpr (std::is_same_v<First, at::Tensor>) return OpWatch::knows(argument);
  return false;
}

/// An op in place, or a view of one tensor. None of the ops below gives its argument other memory.
bool is_of_first_argument(const c10::FunctionSchema& schema) {
  if (schema.returns().size() != 1 || schema.arguments().empty()) return false;
  const c10::AliasInfo* result = schema.returns()[0].alias_info();
  const c10::AliasInfo* argument = schema.arguments()[0].alias_info();
  return result != nullptr && argument != nullptr &&
         result->beforeSets() == argument->beforeSets() &&
         schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
}

void finish(OpWatch& watch, const at::Tensor& result) { watch.finish(result); }

template <typename... Tensors>
void finish(OpWatch& watch, const std::tuple<Tensors...>& result) {
  OpWatch::Results results(watch);
  size_t position = 0;
  std::apply([&](const auto&... tensors) { (results.tell(tensors, position++), ...); }, result);
}

void finish(OpWatch& watch, const std::vector<at::Tensor>& result) {
  OpWatch::Results results(watch);
  for (const at::Tensor& tensor : result) results.tell(tensor, 0);
}

template <typename Op, typename Schema>
struct Handler;

/// Two ways of one op, of which it gets the one that does all for it: between the kernels of torch
/// all code is fetched anew, so that what is not there counts as much as what is not run.
template <typename Op, typename Result, typename... Arguments>
struct Handler<Op, Result(Arguments...)> {
  static OpFacts facts;

  [[gnu::always_inline]] static Result hand_on(c10::DispatchKeySet keys, Arguments... arguments) {
    return Op::redispatch(keys & kBelowFake, std::forward<Arguments>(arguments)...);
  }

  /// For an op that returns its first argument, or a view of it.
  [[gnu::always_inline]] static Result call_with_known(c10::DispatchKeySet keys,
                                                       Arguments... arguments) {
    if (has_runner() || is_idle()) [[unlikely]]
      return call_unwatched(keys, std::forward<Arguments>(arguments)...);
    const torch_thread::WithoutFake guard;
    if (!knows_first(arguments...)) [[unlikely]]
      return watch_all(keys, std::forward<Arguments>(arguments)...);
    return hand_on(keys, std::forward<Arguments>(arguments)...);
  }

  /// For an op whose arguments do not matter.
  [[gnu::always_inline]] static Result call_maker(c10::DispatchKeySet keys,
                                                  Arguments... arguments) {
    if (has_runner() || is_idle()) [[unlikely]]
      return call_unwatched(keys, std::forward<Arguments>(arguments)...);
    const torch_thread::WithoutFake guard;
    OpWatch watch(facts);
    Result result =
        watch.run([&]() -> Result { return hand_on(keys, std::forward<Arguments>(arguments)...); });
    finish(watch, result);
    return result;
  }

  [[gnu::noinline]] static Result watch_all(c10::DispatchKeySet keys, Arguments... arguments) {
    OpWatch watch(facts);
    if (watch.wants_arguments()) (add_argument(watch, arguments), ...);
    Result result =
        watch.run([&]() -> Result { return hand_on(keys, std::forward<Arguments>(arguments)...); });
    finish(watch, result);
    return result;
  }

  [[gnu::noinline, gnu::cold]] static Result call_unwatched(c10::DispatchKeySet keys,
                                                            Arguments... arguments) {
    if (!has_runner()) {
      switch_off_in_this_thread();
      return hand_on(keys, std::forward<Arguments>(arguments)...);
    }
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    static const auto kernel = c10::KernelFunction::makeFromBoxedFunction<&observe>();
    return kernel.call<Result, Arguments...>(op, keys, std::forward<Arguments>(arguments)...);
  }
};

template <typename Op, typename Result, typename... Arguments>
OpFacts Handler<Op, Result(Arguments...)>::facts;

/// Which of its ways an op gets: said where it is listed, so that the other is not even made.
enum class Way : uint8_t { WithKnown, Maker };

bool is_right(Way way, const c10::FunctionSchema& schema, const OpFacts& facts) {
  if (way == Way::WithKnown) return is_of_first_argument(schema);
  return !is_of_first_argument(schema) && !OpWatch::wants_arguments(facts);
}

template <Way kWay, typename Op>
c10::RegistrationHandleRAII register_op() {
  using H = Handler<Op, typename Op::schema>;
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName name(Op::name, Op::overload_name);
  const auto& schema = dispatcher.findSchemaOrThrow(Op::name, Op::overload_name).schema();
  H::facts = OpFacts::read(schema);
  if (!is_right(kWay, schema, H::facts)) {
    throw InternalError("tidegauge takes " + c10::toString(name) +
                        " for an op of another kind than it is in this torch (" + TORCH_VERSION +
                        "); install the torch that it was built for");
  }
  const auto add = [&](auto call) {
    return dispatcher.registerImpl(
        name, c10::DispatchKey::Fake, c10::KernelFunction::makeFromUnboxedFunction(call),
        c10::impl::CppSignature::make<decltype(&H::call_maker)>(), nullptr, "tidegauge");
  };
  if constexpr (kWay == Way::WithKnown) {
    return add(TORCH_FN(H::call_with_known));
  } else {
    return add(TORCH_FN(H::call_maker));
  }
}

template <Way kWay, typename... Ops>
void register_ops(std::vector<c10::RegistrationHandleRAII>& handles) {
  (handles.push_back(register_op<kWay, Ops>()), ...);
}

}  // namespace

std::vector<c10::RegistrationHandleRAII> register_typed_ops() {
  namespace ops = at::_ops;
  std::vector<c10::RegistrationHandleRAII> handles;
  register_ops<Way::WithKnown,
               // views
               ops::alias, ops::as_strided, ops::detach, ops::expand, ops::permute, ops::select_int,
               ops::slice_Tensor, ops::squeeze_dim, ops::t, ops::transpose_int, ops::unsqueeze,
               ops::view,
               // in place
               ops::add__Tensor, ops::add__Scalar, ops::addcdiv_, ops::addcmul_, ops::copy_,
               ops::div__Tensor, ops::fill__Scalar, ops::lerp__Scalar, ops::mul__Tensor,
               ops::mul__Scalar, ops::zero_>(handles);
  register_ops<
      Way::Maker,
      // made new, and views of several parts
      ops::_to_copy, ops::cat, ops::clone, ops::empty_memory_format, ops::empty_like,
      ops::new_zeros, ops::ones_like, ops::split_Tensor, ops::_unsafe_view, ops::zeros_like,
      // pointwise and sums
      ops::add_Tensor, ops::cos, ops::div_Tensor, ops::gelu, ops::gelu_backward, ops::mean_dim,
      ops::mul_Tensor, ops::mul_Scalar, ops::neg, ops::pow_Tensor_Scalar, ops::relu, ops::rsqrt,
      ops::silu, ops::silu_backward, ops::sin, ops::sqrt, ops::sub_Tensor, ops::sum,
      ops::sum_dim_IntList, ops::tanh, ops::tanh_backward, ops::threshold_backward, ops::where_self,
      // layers
      ops::_log_softmax, ops::_log_softmax_backward_data, ops::_softmax,
      ops::_softmax_backward_data, ops::addmm, ops::baddbmm, ops::bmm, ops::convolution,
      ops::convolution_backward, ops::embedding, ops::embedding_dense_backward, ops::mm,
      ops::native_layer_norm, ops::native_layer_norm_backward, ops::nll_loss_forward,
      ops::nll_loss_backward>(handles);
  return handles;
}

}  // namespace tidegauge::op_hook
