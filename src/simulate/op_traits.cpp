// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/op_traits.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/flat_hash_map.h>

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tidegauge::simulation {
namespace {

using c10::DispatchKey;

const std::unordered_map<std::string_view, OpKind>& special_kinds() {
  static const auto* kinds = new std::unordered_map<std::string_view, OpKind>{
      {"aten::_local_scalar_dense", OpKind::Item},
      {"aten::equal", OpKind::Equal},
      {"aten::nonzero", OpKind::Dynamic},
      {"aten::masked_select", OpKind::Dynamic},
      {"aten::_unique", OpKind::Dynamic},
      {"aten::_unique2", OpKind::Dynamic},
      {"aten::unique_dim", OpKind::Dynamic},
      {"aten::unique_consecutive", OpKind::Dynamic},
      {"aten::repeat_interleave.Tensor", OpKind::Dynamic},
      {"aten::bincount", OpKind::Dynamic},
      {"aten::index.Tensor", OpKind::Indexed},
      {"aten::_unsafe_index.Tensor", OpKind::Indexed},
      {"aten::index_put", OpKind::Indexed},
      {"aten::index_put_", OpKind::Indexed},
      {"aten::_index_put_impl_", OpKind::Indexed},
      {"aten::_unsafe_index_put", OpKind::Indexed},
      {"aten::lift_fresh", OpKind::Fresh},
      {"aten::lift", OpKind::Fresh},
      {"aten::_pin_memory", OpKind::Pin},
      {"aten::is_pinned", OpKind::IsPinned},
      {"aten::record_stream", OpKind::RecordStream},
      {"aten::_fused_sdp_choice", OpKind::Choice},
      {"_c10d_functional::wait_tensor", OpKind::Wait},
      {"_c10d_functional::_wrap_tensor_autograd", OpKind::Wait},
  };
  return *kinds;
}

/// True for ops whose results are known whatever values their arguments hold.
bool makes_values(std::string_view name) {
  static const auto* names = new std::unordered_set<std::string_view>{
      "aten::arange",
      "aten::arange.start",
      "aten::arange.start_step",
      "aten::eye",
      "aten::eye.m",
      "aten::full",
      "aten::full_like",
      "aten::linspace",
      "aten::new_full",
      "aten::new_ones",
      "aten::new_zeros",
      "aten::ones",
      "aten::ones_like",
      "aten::zeros",
      "aten::zeros_like",
      "aten::scalar_tensor",
      "aten::zero_",
      "aten::fill_.Scalar",
      "aten::random_",
      "aten::random_.from",
      "aten::random_.to",
      "aten::rand",
      "aten::rand.generator",
      "aten::randint",
      "aten::randint.low",
      "aten::randperm",
      "aten::randint.generator",
      "aten::randint.low_generator",
      "aten::randperm.generator",
  };
  return names->count(name) != 0;
}

std::optional<c10::OperatorHandle> find_with_generator(const c10::OperatorName& name) {
  static const auto* names = new std::unordered_map<std::string, const char*>{
      {"aten::rand", "generator"},
      {"aten::randint", "generator"},
      {"aten::randint.low", "low_generator"},
      {"aten::randperm", "generator"},
  };
  const auto it = names->find(c10::toString(name));
  if (it == names->end()) return std::nullopt;
  return c10::Dispatcher::singleton().findSchema({name.name, it->second});
}

/// Gradients are assumed to be finite, so this op does not change `found_inf`.
bool is_left_unchanged(std::string_view name, const c10::Argument& argument) {
  return name == "aten::_amp_foreach_non_finite_check_and_unscale_" &&
         argument.name() == "found_inf";
}

/// True for ops that accept tensors on different devices, as on a machine that has them.
bool mixes_devices(std::string_view name) {
  static const auto* names = new std::unordered_set<std::string_view>{
      "aten::copy_",      "aten::_to_copy",           "aten::_foreach_copy_",
      "aten::_copy_from", "aten::set_.source_Tensor", "aten::embedding_renorm_",
  };
  return names->count(name) != 0;
}

/// True for ops that change the sizes, strides or storage of their argument.
bool changes_geometry(std::string_view name) {
  static const auto* names = new std::unordered_set<std::string_view>{
      "aten::set_.source_Tensor",
      "aten::set_",
      "aten::resize_",
      "aten::resize_as_",
      "aten::as_strided_",
      "aten::as_strided",
      "aten::t_",
      "aten::transpose_",
      "aten::squeeze_",
      "aten::unsqueeze_",
      "aten::squeeze_.dim",
      "aten::_resize_output_",
      "aten::set_.source_Tensor_storage_offset",
      "aten::set_.source_Storage",
      "aten::set_.source_Storage_storage_offset",
  };
  return names->count(name) != 0;
}

struct Table {
  std::mutex mutex;
  std::unordered_set<std::string> decomposed;
  std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpTraits>> traits;
  uint64_t generation = 1;
};
Table& table() {
  static auto* all = new Table;
  return *all;
}

void read_schema(OpTraits& traits, const c10::FunctionSchema& schema) {
  traits.argument_count = static_cast<int>(schema.arguments().size());
  traits.result_count = static_cast<int>(schema.returns().size());
  for (int i = 0; i < traits.argument_count; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.name() == "device") traits.device_argument = i;
    if (argument.name() == "dtype") traits.dtype_argument = i;
    if (argument.name() == "pin_memory") traits.pin_argument = i;
    if (argument.name() == "generator") traits.generator_argument = i;
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (is_written && i < 64 && !is_left_unchanged(traits.name, argument)) {
      traits.written |= uint64_t{1} << i;
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    traits.is_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
}

OpKind kind_of(const c10::OperatorHandle& op, const std::string& name) {
  if (name.rfind("c10d::", 0) == 0) return OpKind::Collective;
  if (const auto it = special_kinds().find(name); it != special_kinds().end()) return it->second;
  if (table().decomposed.count(name) != 0) return OpKind::Decomposed;
  const bool is_composite = op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
                            !op.hasKernelForDispatchKey(DispatchKey::Meta);
  return is_composite ? OpKind::Composite : OpKind::Plain;
}

std::unique_ptr<OpTraits> read(const c10::OperatorHandle& op) {
  auto traits = std::make_unique<OpTraits>();
  traits->name = c10::toString(op.operator_name());
  traits->id = static_cast<uint32_t>(table().traits.size() + 1);
  read_schema(*traits, op.schema());
  traits->kind = kind_of(op, traits->name);
  traits->is_random =
      op.hasTag(at::Tag::nondeterministic_seeded) || traits->generator_argument >= 0;
  traits->with_generator = find_with_generator(op.operator_name());
  traits->ignores_doubles = op.hasTag(at::Tag::pointwise) || traits->written != 0;
  traits->makes_values = makes_values(traits->name);
  traits->mixes_devices = mixes_devices(traits->name);
  traits->is_collective = traits->name.starts_with("_c10d_functional::");
  traits->is_choice = traits->name == "aten::topk" || traits->name == "aten::max.dim" ||
                      traits->name == "aten::argmax";
  traits->constant_rule = find_constant_rule(op, traits->name);
  traits->check = find_check(traits->name);
  traits->correction = find_correction(traits->name);
  traits->fused_op = find_fused_op(traits->name);
  traits->kernel_memory = find_kernel_memory(traits->name);
  traits->changes_geometry = changes_geometry(traits->name);
  traits->is_cacheable = !traits->changes_geometry;
  return traits;
}

}  // namespace

OpTraits& OpTraits::find(const c10::OperatorHandle& op) {
  struct Own {
    uint64_t generation = 0;
    ska::flat_hash_map<const c10::FunctionSchema*, OpTraits*> known;
  };
  thread_local Own own;
  Table& all = table();
  const c10::FunctionSchema* schema = &op.schema();
  if (own.generation == all.generation) {
    if (const auto it = own.known.find(schema); it != own.known.end()) return *it->second;
  }
  const std::lock_guard lock(all.mutex);
  if (own.generation != all.generation) own = {all.generation, {}};
  auto& traits = all.traits[schema];
  if (!traits) traits = read(op);
  own.known[schema] = traits.get();
  return *traits;
}

void OpTraits::reset(const std::vector<std::string>& decomposed) {
  Table& all = table();
  const std::lock_guard lock(all.mutex);
  all.decomposed = {decomposed.begin(), decomposed.end()};
  all.traits.clear();
  ++all.generation;
}

std::vector<const OpTraits*> OpTraits::all() {
  Table& every = table();
  const std::lock_guard lock(every.mutex);
  std::vector<const OpTraits*> result;
  result.reserve(every.traits.size());
  for (const auto& [schema, traits] : every.traits) result.push_back(traits.get());
  return result;
}

}  // namespace tidegauge::simulation
