// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/collective_values.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "simulate/known_values.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation::collective_values {
namespace {

using c10::IValue;

struct Group {
  int64_t rank = 0;
  int64_t size = 1;
};

/// The process group among the arguments: itself, or its name as the last argument.
std::optional<Group> find_group(std::span<const IValue> arguments) {
  for (const IValue& argument : arguments) {
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    if (argument.isCustomClass()) {
      group = argument.toCustomClass<c10d::ProcessGroup>();  // it precedes a ReduceOp
    } else if (argument.isString() && &argument == &arguments.back()) {
      group = c10d::resolve_process_group(argument.toStringRef());
    }
    if (group) return Group{group->getRank(), group->getSize()};
  }
  return std::nullopt;
}

/// `values` may be undefined: then they are unknown.
void give_values(const at::Tensor& tensor, const at::Tensor& values) {
  known_values::forget(tensor);
  if (is_simulated(tensor) && values.defined() && values.numel() == tensor.numel()) {
    known_values::keep_copy(tensor, values.reshape(tensor.sizes()));
  }
}

at::Tensor find_known(const at::Tensor& tensor) {
  return known_values::are_known(tensor) ? known_values::find(tensor) : at::Tensor();
}

at::Tensor repeat(const at::Tensor& part, int64_t times) {
  const std::vector<at::Tensor> parts(times, part);
  return at::cat(parts);
}

/// What this rank receives: its own part of what each rank sends. Undefined if a rank sends another
/// number of elements than this rank expects.
at::Tensor exchange(const at::Tensor& sent, c10::IntArrayRef output_splits,
                    c10::IntArrayRef input_splits, const Group& group) {
  if (input_splits.empty()) return repeat(sent.chunk(group.size)[group.rank], group.size);
  int64_t begin = 0;
  for (int64_t rank = 0; rank < group.rank; ++rank) begin += input_splits[rank];
  const int64_t length = input_splits[group.rank];
  for (const int64_t expected : output_splits) {
    if (expected != length) return {};
  }
  return repeat(sent.narrow(0, begin, length), group.size);
}

/// The reduction of equal values; undefined for a kind that needs more than the values.
at::Tensor reduce(const at::Tensor& values, const std::string& kind, const Group& group) {
  if (kind == "sum") return values * group.size;
  if (kind == "product") return values.pow(group.size);
  if (kind == "avg" || kind == "min" || kind == "max" || kind == "band" || kind == "bor") {
    return values.clone();
  }
  return {};
}

std::string kind_of(const c10d::ReduceOp& op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "avg";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    case c10d::ReduceOp::MIN:
      return "min";
    case c10d::ReduceOp::MAX:
      return "max";
    case c10d::ReduceOp::BAND:
      return "band";
    case c10d::ReduceOp::BOR:
      return "bor";
    default:
      return "";
  }
}

void follow_reduction(std::span<const IValue> arguments, const Group& group) {
  const std::string kind = kind_of(*arguments[2].toCustomClass<c10d::ReduceOp>());
  for (const at::Tensor& tensor : arguments[0].toTensorVector()) {
    if (const at::Tensor values = find_known(tensor); values.defined()) {
      give_values(tensor, reduce(values, kind, group));
    }
  }
}

void follow_lists(std::span<const IValue> arguments, const std::vector<at::Tensor>& inputs,
                  const Group& group, bool is_gather) {
  if (is_gather) {
    const auto lists = arguments[0].toListRef();
    for (size_t i = 0; i < std::min(lists.size(), inputs.size()); ++i) {
      for (const at::Tensor& output : lists[i].toTensorVector()) give_values(output, inputs[i]);
    }
  } else if (group.rank < static_cast<int64_t>(inputs.size())) {
    for (const at::Tensor& output : arguments[0].toTensorVector()) {
      give_values(output, inputs[group.rank]);
    }
  }
}

std::vector<at::Tensor> find_all_known(const IValue& list) {
  std::vector<at::Tensor> known;
  for (const at::Tensor& tensor : list.toTensorVector()) known.push_back(find_known(tensor));
  return known;
}

/// The ops of torch.distributed._functional_collectives, which return their results.
void follow_functional(const std::string& name, std::span<const IValue> arguments,
                       std::span<const IValue> results, const Group& group) {
  if (results.size() != 1 || !results[0].isTensor() || !arguments[0].isTensor()) return;
  const at::Tensor& result = results[0].toTensor();
  const at::Tensor input = find_known(arguments[0].toTensor());
  if (!input.defined()) return known_values::forget(result);
  const std::string op = name.substr(name.rfind(':') + 1);
  if (op == "all_gather_into_tensor") return give_values(result, repeat(input, group.size));
  if (op == "all_reduce" || op == "all_reduce_") {
    const std::string kind = arguments[1].isString() ? arguments[1].toStringRef() : "";
    return give_values(result, reduce(input, kind, group));
  }
  if (op == "all_to_all_single") {
    return give_values(
        result, exchange(input, arguments[1].toIntVector(), arguments[2].toIntVector(), group));
  }
  give_values(result, op == "broadcast" ? input : at::Tensor());
}

}  // namespace

void follow(const OpTraits& traits, std::span<const IValue> arguments,
            std::span<const IValue> results) {
  const std::string& name = traits.name;
  // These do not change the values of this rank.
  if (name == "c10d::broadcast_" || name == "_c10d_functional::broadcast_" ||
      name == "c10d::send") {
    return;
  }
  const known_values::OutOfSight guard;
  const std::optional<Group> group = find_group(arguments);
  if (!group) return known_values::forget(arguments[0]);
  if (name == "c10d::allreduce_") return follow_reduction(arguments, *group);
  if (name == "c10d::allgather_" || name == "c10d::alltoall_") {
    const std::vector<at::Tensor> inputs = find_all_known(arguments[1]);
    known_values::forget(arguments[0]);
    return follow_lists(arguments, inputs, *group, name == "c10d::allgather_");
  }
  if (name == "c10d::_allgather_base_") {
    const at::Tensor input = find_known(arguments[1].toTensor());
    return give_values(arguments[0].toTensor(),
                       input.defined() ? repeat(input, group->size) : at::Tensor());
  }
  if (name == "c10d::alltoall_base_") {
    const at::Tensor input = find_known(arguments[1].toTensor());
    return give_values(arguments[0].toTensor(), input.defined()
                                                    ? exchange(input, arguments[3].toIntVector(),
                                                               arguments[4].toIntVector(), *group)
                                                    : at::Tensor());
  }
  if (name.starts_with("c10d::")) return known_values::forget(arguments[0]);
  follow_functional(name, arguments, results, *group);
}

}  // namespace tidegauge::simulation::collective_values
