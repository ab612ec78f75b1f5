// SPDX-License-Identifier: BSD-3-Clause
#include "rehearse/value_ops.h"

#include <ATen/core/enum_tag.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/hooks/boxed_tensors.h"
#include "rehearse/device_values.h"
#include "simulate/constant_rule.h"

namespace tidegauge::rehearsal {
namespace {

using c10::IValue;
using simulation::ConstantRule;
using Stack = torch::jit::Stack;

constexpr int64_t kMostExperts = 2048;  // a larger choice is one of words, not of experts

SimulationPolicy policy;

using Kernel = std::decay_t<decltype(std::declval<const c10::OperatorHandle&>()
                                         .getComputedKernelForDispatchKey(c10::DispatchKey::CUDA))>;

/// Facts about an op in our list.
struct Op {
  explicit Op(const c10::OperatorHandle& op)
      : kernel(op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA)),
        name(op.operator_name().name),
        arguments(op.schema().arguments().size()),
        rule(simulation::find_constant_rule(op, c10::toString(op.operator_name()))) {
    for (size_t i = 0; i < arguments; ++i) {
      const c10::Argument& argument = op.schema().arguments()[i];
      const auto* alias = argument.alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(i);
      if (argument.name() == "device") device_argument = static_cast<int>(i);
    }
    is_sum = rule == ConstantRule::Sum;
    is_choice = name == "aten::topk" || name == "aten::max" || name == "aten::argmax";
    is_unique = name.starts_with("aten::_unique") || name.starts_with("aten::unique");
  }
  Kernel kernel;
  std::string name;
  size_t arguments;
  ConstantRule rule;
  std::vector<size_t> written;
  int device_argument = -1;
  bool is_sum = false;
  bool is_choice = false;
  bool is_unique = false;
};

std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Op>>& table() {
  static auto* all = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Op>>;
  return *all;
}

bool is_integral(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}
bool is_small(const at::Tensor& tensor) {
  return tensor.numel() <= (is_integral(tensor) ? kMostIntegers : kMostNumbers);
}

/// What is known of all arguments together.
struct Facts {
  bool are_small = true;
  Knowledge knowledge = Knowledge::Known;
};
Facts find_facts(std::span<const IValue> arguments, bool are_read) {
  Facts facts;
  for (const IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      // Unknown floating point numbers are all equal, and a comparison of a few thousand is cheap.
      facts.are_small = facts.are_small && tensor.numel() <= kMostIntegers;
      if (!are_read) return;
      const Knowledge knowledge =
          is_small(tensor) || is_integral(tensor) ? find_knowledge(tensor) : Knowledge::Unknown;
      if (knowledge != Knowledge::Known && facts.knowledge == Knowledge::Known) {
        facts.knowledge = knowledge;
      }
    });
  }
  return facts;
}

IValue to_host(const IValue& value) {
  if (value.isTensor()) return read(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(read(tensor));
    return list;
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef()) list.push_back(to_host(item));
    return list;
  }
  return value;
}

/// Runs the op on the host; nothing if the host has no kernel for it or refuses the values.
std::optional<Stack> compute(const c10::OperatorHandle& handle, const Op& op, Stack arguments) {
  const OutOfSight guard;
  for (IValue& argument : arguments) argument = to_host(argument);
  if (op.device_argument >= 0) arguments[op.device_argument] = c10::Device(c10::kCPU);
  try {
    handle.callBoxed(arguments);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return arguments;
}

void write_results(std::span<const IValue> results, std::span<const IValue> values,
                   Knowledge knowledge) {
  for (size_t i = 0; i < std::min(results.size(), values.size()); ++i) {
    if (!results[i].isTensor() || !values[i].isTensor()) continue;
    const at::Tensor& result = results[i].toTensor();
    const at::Tensor& value = values[i].toTensor();
    if (!result.defined() || !result.is_cuda() || result.sizes() != value.sizes()) continue;
    if (is_integral(result) ? result.numel() <= kMostIntegers
                            : knowledge == Knowledge::Known && is_small(result)) {
      write(result, value, knowledge != Knowledge::Known);
    }
  }
}

/// The op on tensors of one element each, if all elements of each argument are equal.
std::optional<c10::Scalar> compute_one(const c10::OperatorHandle& handle, const Op& op,
                                       std::span<const IValue> arguments) {
  const OutOfSight guard;
  Stack stack(arguments.begin(), arguments.end());
  for (IValue& argument : stack) {
    if (argument.isTensorList()) return std::nullopt;
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor& tensor = argument.toTensor();
    const auto common = find_common(tensor);
    if (!common) return std::nullopt;
    argument = at::full(std::vector<int64_t>(tensor.dim(), 1), *common, tensor.scalar_type());
  }
  if (op.device_argument >= 0) stack[op.device_argument] = c10::Device(c10::kCPU);
  try {
    handle.callBoxed(stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (stack.size() != 1 || !stack[0].isTensor() || stack[0].toTensor().numel() != 1) return {};
  return stack[0].toTensor().item();
}

bool has_one_value(ConstantRule rule) {
  using enum ConstantRule;
  return rule == Pointwise || rule == Compare || rule == NotFinite || rule == Select || rule == Sum;
}

void write_common_result(const c10::OperatorHandle& handle, const Op& op,
                         std::span<const IValue> arguments, const at::Tensor& result,
                         Knowledge knowledge) {
  if (!has_one_value(op.rule)) return;
  auto value = compute_one(handle, op, arguments);
  if (!value) return;
  if (op.is_sum && result.numel() > 0) {
    value = value->toLong() * (arguments[0].toTensor().numel() / result.numel());
  }
  write_common(result, *value, knowledge != Knowledge::Known);
}

/// The experts that a router chooses.
bool follow_choice(const Op& op, std::span<const IValue> arguments,
                   std::span<const IValue> results) {
  if (!op.is_choice || !policy.routing || arguments.size() < 2 || !results.back().isTensor())
    return false;
  const at::Tensor& scores = arguments[0].toTensor();
  const at::Tensor& chosen = results.back().toTensor();
  if (scores.dim() < 2 || !scores.is_floating_point() || chosen.scalar_type() != at::kLong ||
      chosen.numel() == 0 || chosen.numel() > kMostIntegers ||
      find_knowledge(scores) == Knowledge::Known) {
    return false;
  }
  // topk(self, k, dim), max(self, dim), argmax(self, dim?): only along the last dimension.
  const bool is_topk = op.name == "aten::topk";
  const IValue& dim = arguments[is_topk ? 2 : 1];
  if (!dim.isInt() || (dim.toInt() != -1 && dim.toInt() != scores.dim() - 1)) return false;
  const int64_t experts = scores.size(-1);
  const int64_t choices = is_topk ? arguments[1].toInt() : 1;
  if (experts > kMostExperts || choices < 1) return false;
  const OutOfSight guard;
  const at::Tensor routed = policy.routing(chosen.numel() / choices, choices, experts);
  if (!routed.defined() || routed.numel() != chosen.numel()) return false;
  write(chosen, routed.reshape(chosen.sizes()), /*is_assumed=*/false);
  return true;
}

void follow(const c10::OperatorHandle& handle, const Op& op, Stack& arguments,
            std::span<const IValue> results) {
  if (follow_choice(op, arguments, results)) return;
  const bool has_integers = std::any_of(results.begin(), results.end(), [](const IValue& result) {
    return result.isTensor() && result.toTensor().defined() && is_integral(result.toTensor());
  });
  const bool is_one = results.size() == 1 && results[0].isTensor();
  bool is_known = false;
  Facts facts = find_facts(arguments, /*are_read=*/false);
  if (has_integers || facts.are_small) facts = find_facts(arguments, /*are_read=*/true);
  if (has_integers && !facts.are_small && is_one) {
    for (const size_t index : op.written) forget(arguments[index].toTensor());
    return write_common_result(handle, op, arguments, results[0].toTensor(), facts.knowledge);
  }
  if (facts.are_small && (has_integers || facts.knowledge == Knowledge::Known)) {
    if (const auto values = compute(handle, op, arguments)) {
      write_results(results, *values, facts.knowledge);
      is_known = true;
    }
  }
  if (is_known) return;
  for (const size_t index : op.written) {
    visit_tensors(arguments[index], [](const at::Tensor& tensor) { forget(tensor); });
  }
}

/// How many elements of a mask are selected.
int64_t count_selected(const at::Tensor& mask) {
  if (find_knowledge(mask) == Knowledge::Known) {
    if (const auto common = find_common(mask)) return common->toDouble() != 0 ? mask.numel() : 0;
    if (mask.numel() <= kMostIntegers) {
      const OutOfSight guard;
      return read(mask).count_nonzero().item().toLong();
    }
  }
  const double selected = std::ceil(static_cast<double>(mask.numel()) * policy.mask_fraction);
  return std::clamp<int64_t>(static_cast<int64_t>(selected), 0, mask.numel());
}

void run_nonzero(const c10::OperatorHandle& handle, const Op& op, c10::DispatchKeySet keys,
                 Stack* stack) {
  const at::Tensor mask = stack->at(stack->size() - op.arguments).toTensor();
  const int64_t count = count_selected(mask);
  {
    const ReadScope scope(at::kLong, count);
    op.kernel.callBoxed(handle, keys, stack);
  }
  const at::Tensor& result = stack->back().toTensor();
  if (mask.numel() > kMostIntegers || result.numel() > kMostIntegers) return;
  const OutOfSight guard;
  at::Tensor places = read(mask);
  if (find_knowledge(mask) != Knowledge::Known) {  // the first ones
    places = at::zeros({mask.numel()}, at::TensorOptions(at::kBool));
    places.narrow(0, 0, count).fill_(true);
    places = places.view(mask.sizes());
  }
  write(result, places.nonzero(), /*is_assumed=*/false);
}

/// All elements may be different, unless their values are known.
int64_t count_unique(const at::Tensor& tensor) {
  if (tensor.numel() > kMostIntegers || find_knowledge(tensor) != Knowledge::Known) return 0;
  return 1;
}

void run(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  const Op& op = *table().at(&handle.schema());
  if (op.name == "aten::nonzero" && op.arguments == 1 && !stack->back().toTensor().is_meta())
    return run_nonzero(handle, op, keys, stack);
  Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(op.arguments), stack->end());
  const size_t base = stack->size() - op.arguments;
  std::optional<ReadScope> scope;
  if (op.is_unique) {
    const at::Tensor& self = arguments[0].toTensor();
    int64_t count = self.numel();
    if (count_unique(self) != 0) {
      if (const auto values = compute(handle, op, arguments))
        count = values->front().toTensor().numel();
    }
    scope.emplace(at::kLong, count);
  }
  op.kernel.callBoxed(handle, keys, stack);
  scope.reset();
  follow(handle, op, arguments, std::span<const IValue>(*stack).subspan(base));
}

/// Random numbers read as a number in their middle, so that a program that draws again until all
/// numbers are in their range (trunc_normal_) ends.
std::optional<c10::Scalar> find_middle(const Op& op, std::span<const IValue> arguments) {
  const auto at = [&](size_t i) { return arguments[i].toDouble(); };
  if (op.name == "aten::normal_") return at(1);
  if (op.name == "aten::uniform_") return (at(1) + at(2)) / 2;
  if (op.name == "aten::exponential_") return 1 / at(1);
  // random_.from(self, from, to, generator)
  if (op.name == "aten::random_" && arguments.size() == 4) return arguments[1].toInt();
  return std::nullopt;
}

void run_random(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
  const Op& op = *table().at(&handle.schema());
  const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(op.arguments), stack->end());
  op.kernel.callBoxed(handle, keys, stack);
  const at::Tensor& self = arguments[0].toTensor();
  if (const auto middle = find_middle(op, arguments)) {
    write_common(self, *middle, /*is_assumed=*/true);
  } else {
    forget(self);
  }
}

/// Ops without the tag `pointwise` whose results are followed.
const std::unordered_set<std::string_view>& listed() {
  static const auto* names = new std::unordered_set<std::string_view>{
      "aten::all",
      "aten::amax",
      "aten::amin",
      "aten::any",
      "aten::arange",
      "aten::argmax",
      "aten::argmin",
      "aten::argsort",
      "aten::bincount",
      "aten::bucketize",
      "aten::cat",
      "aten::constant_pad_nd",
      "aten::count_nonzero",
      "aten::cumsum",
      "aten::cumprod",
      "aten::eye",
      "aten::flip",
      "aten::gather",
      "aten::histc",
      "aten::index",
      "aten::index_add_",
      "aten::index_fill_",
      "aten::_index_put_impl_",
      "aten::index_select",
      "aten::isin",
      "aten::kthvalue",
      "aten::linspace",
      "aten::masked_fill_",
      "aten::max",
      "aten::median",
      "aten::min",
      "aten::nonzero",
      "aten::prod",
      "aten::repeat_interleave",
      "aten::roll",
      "aten::scatter",
      "aten::scatter_",
      "aten::scatter_add",
      "aten::scatter_add_",
      "aten::searchsorted",
      "aten::sort",
      "aten::sum",
      "aten::topk",
      "aten::tril",
      "aten::triu",
      "aten::unique_consecutive",
      "aten::unique_dim",
      "aten::_unique2",
      "aten::where",
      "aten::fill_",
  };
  return *names;
}

bool is_random(std::string_view name) {
  return name == "aten::normal_" || name == "aten::uniform_" || name == "aten::exponential_" ||
         name == "aten::random_";
}

/// Kernels that answer_values replaces, or whose results depend on values that are unknown.
bool is_left_alone(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  return name == "aten::fill_.Scalar" || name == "aten::copy_" ||
         (op.hasTag(at::Tag::nondeterministic_seeded) && !is_random(op.operator_name().name)) ||
         op.schema().returns().empty();
}

}  // namespace

void set_policy(const SimulationPolicy& given) {
  policy = given;
  set_unknown_number(given.item.value_or(1.0));
}

void add_value_ops(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || is_left_alone(*op) || !op->hasComputedKernelForDispatchKey(c10::DispatchKey::CUDA))
      continue;
    if (is_random(name.name)) {
      table().emplace(&op->schema(), std::make_unique<Op>(*op));
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&run_random>());
      continue;
    }
    const bool is_pointwise = op->hasTag(at::Tag::pointwise);
    if (!is_pointwise && listed().count(name.name) == 0) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) continue;
    table().emplace(&op->schema(), std::make_unique<Op>(*op));
    library.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

void follow_copy(const at::Tensor& to, const at::Tensor& from) {
  if (!is_integral(to) || to.numel() == 0) return;
  const Knowledge knowledge = find_knowledge(from);
  if (knowledge == Knowledge::Unknown) return forget(to);
  const OutOfSight guard;
  const bool is_assumed = knowledge == Knowledge::Assumed;
  if (to.numel() <= kMostIntegers) return write(to, read(from).expand_as(to), is_assumed);
  if (const auto common = find_common(from)) {
    write_common(to, *common, is_assumed);
  } else {
    forget(to);
  }
}

}  // namespace tidegauge::rehearsal
