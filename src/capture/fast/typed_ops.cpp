// SPDX-License-Identifier: BSD-3-Clause
#include "capture/fast/typed_ops.h"

#include <ATen/Operators.h>
#include <ATen/core/boxing/KernelFunction.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "capture/compat/dispatch_key.h"
#include "capture/compat/op_route.h"
#include "capture/compat/torch_thread.h"
#include "capture/compat/torch_version.h"
#include "capture/fast/known_memory.h"
#include "capture/fast/node_cache.h"
#include "capture/fast/sole.h"
#include "capture/fast/sole_listener.h"
#include "capture/hooks/boxed_op.h"
#include "capture/hooks/op_switch.h"
#include "capture/hooks/op_watch.h"
#include "capture/storages/known_storage.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "tidegauge/errors.h"

namespace tidegauge::fast {
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

[[gnu::noinline]] void notify_gradient_locked(const RunningNode& running,
                                              const at::Tensor& tensor) {
  const auto lock = StorageRegistry::lock();
  const StorageId id = find_known(storage_of(tensor));
  if (!id) return;
  if (sole.listener != nullptr) [[likely]]
    return sole.listener->gradient_accumulated(id);
  notify_gradient(running, id);
}

/// For an op that only returns this argument or a view of it. If every listener knows the memory,
/// sends the notifications for the op and returns true: then the op needs no OpWatch.
bool handle_known(const at::Tensor& argument) noexcept {
  try {
    const RunningNode running = observe_node();
    if (!is_known(argument)) return false;
    if (running.gradient_listeners != 0) notify_gradient_locked(running, argument);
    return true;
  } catch (const std::exception& error) {
    OpWatch::note_failure(error.what());
    return false;
  }
}

template <typename First, typename... Rest>
bool handle_known_first(const First& argument, const Rest&...) {
  if constexpr (std::is_same_v<First, at::Tensor>) return handle_known(argument);
  return false;
}

/// True for an in-place op and for a view of one tensor. None of the ops listed below replaces the
/// memory of its argument.
bool returns_first_argument(const c10::FunctionSchema& schema) {
  if (schema.returns().size() != 1 || schema.arguments().empty()) return false;
  const c10::AliasInfo* result = schema.returns()[0].alias_info();
  const c10::AliasInfo* argument = schema.arguments()[0].alias_info();
  return result != nullptr && argument != nullptr &&
         result->beforeSets() == argument->beforeSets() &&
         schema.returns()[0].type()->kind() == c10::TypeKind::TensorType;
}

using fast::finish;  // for one result

template <typename... Tensors>
void finish(OpWatch& watch, const std::tuple<Tensors...>& result) {
  OpWatch::Results results(watch);
  size_t position = 0;
  std::apply([&](const auto&... tensors) { (results.observe(tensors, position++), ...); }, result);
}

void finish(OpWatch& watch, const std::vector<at::Tensor>& result) {
  OpWatch::Results results(watch);
  for (const at::Tensor& tensor : result) results.observe(tensor, 0);
}

template <typename Op, typename Schema>
struct Handler;

/// Each op gets exactly one of two handlers, to keep the instruction footprint small: kernels evict
/// our code from the cache between two ops.
template <typename Op, typename Result, typename... Arguments>
struct Handler<Op, Result(Arguments...)> {
  static OpFacts facts;

  [[gnu::always_inline]] static Result pass_on(c10::DispatchKeySet keys, Arguments... arguments) {
    return Op::redispatch(keys & dispatch_key::kBelowOurs, std::forward<Arguments>(arguments)...);
  }

  /// The sequence of `watch_boxed` (hooks/boxed_op.h) with typed arguments.
  template <bool kNeedsArguments>
  [[gnu::always_inline]] static Result watch(c10::DispatchKeySet keys, Arguments... arguments) {
    OpWatch watch(facts);
    if constexpr (kNeedsArguments) {
      if (facts.needs_arguments()) (add_argument(watch, arguments), ...);
    }
    Result result =
        watch.run([&]() -> Result { return pass_on(keys, std::forward<Arguments>(arguments)...); });
    finish(watch, result);
    return result;
  }

  /// For an op that returns its first argument, or a view of it.
  [[gnu::always_inline]] static Result handle_first(c10::DispatchKeySet keys,
                                                    Arguments... arguments) {
    if (is_uncommon(keys)) [[unlikely]]
      return handle_uncommon(keys, std::forward<Arguments>(arguments)...);
    const torch_thread::WithoutOurKey guard;
    if (!handle_known_first(arguments...)) [[unlikely]]
      return watch_unknown(keys, std::forward<Arguments>(arguments)...);
    return pass_on(keys, std::forward<Arguments>(arguments)...);
  }
  [[gnu::noinline]] static Result watch_unknown(c10::DispatchKeySet keys, Arguments... arguments) {
    return watch<true>(keys, std::forward<Arguments>(arguments)...);
  }

  /// For an op whose arguments need not be observed.
  [[gnu::always_inline]] static Result handle_maker(c10::DispatchKeySet keys,
                                                    Arguments... arguments) {
    if (is_uncommon(keys)) [[unlikely]]
      return handle_uncommon(keys, std::forward<Arguments>(arguments)...);
    const torch_thread::WithoutOurKey guard;
    return watch<false>(keys, std::forward<Arguments>(arguments)...);
  }

  /// Within a simulation, with a listener for ops, when no thread is tracked any more, or if Python
  /// handles the op first.
  [[gnu::always_inline]] static bool is_uncommon(c10::DispatchKeySet keys) {
    return op_hook::needs_boxed() || op_hook::is_idle() || dispatch_key::is_for_python(keys);
  }
  [[gnu::noinline, gnu::cold]] static Result handle_uncommon(c10::DispatchKeySet keys,
                                                             Arguments... arguments) {
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    static const auto kernel = c10::KernelFunction::makeFromBoxedFunction<&op_hook::handle_boxed>();
    return kernel.call<Result, Arguments...>(op, keys, std::forward<Arguments>(arguments)...);
  }
};

template <typename Op, typename Result, typename... Arguments>
OpFacts Handler<Op, Result(Arguments...)>::facts;

/// The handler of an op. It is chosen in the list below, so that the other one is not compiled.
enum class Kind : uint8_t { ReturnsFirst, Maker };

bool is_of_kind(Kind kind, const c10::FunctionSchema& schema, const OpFacts& facts) {
  if (kind == Kind::ReturnsFirst) return returns_first_argument(schema);
  return !returns_first_argument(schema) && !facts.needs_arguments();
}

using Handles = std::vector<c10::RegistrationHandleRAII>;

template <Kind kKind, typename Op>
void register_op(Handles& handles) {
  using H = Handler<Op, typename Op::schema>;
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName name(Op::name, Op::overload_name);
  const auto op = dispatcher.findSchemaOrThrow(Op::name, Op::overload_name);
  if (op_route::has_front_kernel(op)) return;
  const auto& schema = op.schema();
  H::facts = OpFacts::read(schema);
  if (!is_of_kind(kKind, schema, H::facts)) {
    throw InternalError("the schema of " + c10::toString(name) +
                        " in this torch is not the one that tidegauge expects; install torch " +
                        torch_version());
  }
  const auto add = [&](auto call) {
    handles.push_back(dispatcher.registerImpl(
        name, dispatch_key::kOurs, c10::KernelFunction::makeFromUnboxedFunction(call),
        c10::impl::CppSignature::make<decltype(&H::handle_maker)>(), nullptr, "tidegauge"));
  };
  if constexpr (kKind == Kind::ReturnsFirst) {
    add(TORCH_FN(H::handle_first));
  } else {
    add(TORCH_FN(H::handle_maker));
  }
}

template <Kind kKind, typename... Ops>
void register_ops(Handles& handles) {
  (register_op<kKind, Ops>(handles), ...);
}

Handles register_all() {
  namespace ops = at::_ops;
  Handles handles;
  register_ops<Kind::ReturnsFirst,
               // views
               ops::alias, ops::as_strided, ops::detach, ops::expand, ops::permute, ops::select_int,
               ops::slice_Tensor, ops::squeeze_dim, ops::t, ops::transpose_int, ops::unsqueeze,
               ops::view,
               // in place
               ops::add__Tensor, ops::add__Scalar, ops::addcdiv_, ops::addcmul_, ops::copy_,
               ops::div__Tensor, ops::fill__Scalar, ops::lerp__Scalar, ops::mul__Tensor,
               ops::mul__Scalar, ops::zero_>(handles);
  register_ops<
      Kind::Maker,
      // copies, new tensors, and several views of one tensor
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

}  // namespace

void plug_typed_handlers(bool is_enabled) {
  static auto* handles = new Handles;  // never destroyed: ops may run until the process ends
  handles->clear();
  if (is_enabled) *handles = register_all();
}

}  // namespace tidegauge::fast
