// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/known_values.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>

#include <mutex>
#include <utility>

#include "capture/hooks/boxed_tensors.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation::known_values {
namespace {

using c10::IValue;

at::Generator& own_generator() {
  static auto* generator = new at::Generator(at::detail::createCPUGenerator());
  return *generator;
}

bool is_few(const at::Tensor& tensor) {
  const bool is_integral = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  return tensor.numel() <= (is_integral ? kMaxIntegers : kMaxFloats);
}

/// An uninitialized real tensor in place of `tensor`, for ops that ignore its values.
at::Tensor make_like(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

/// Gives `tensor` values for an op to write to.
at::Tensor make_values_for(const at::Tensor& tensor) {
  const at::Tensor real = make_like(tensor);
  keep(tensor, real);
  return real;
}

at::Tensor to_real(const at::Tensor& tensor, bool needs_values, bool is_written) {
  if (!tensor.defined()) return tensor;
  at::Tensor known = find(tensor);
  if (known.defined()) return known;
  TORCH_INTERNAL_ASSERT(!needs_values);
  return is_written ? make_values_for(tensor) : make_like(tensor);
}

IValue to_real(const IValue& value, bool needs_values, bool is_written) {
  if (value.isTensor()) return to_real(value.toTensor(), needs_values, is_written);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(to_real(tensor, needs_values, is_written));
    }
    return list;
  }
  if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (const IValue& item : value.toListRef()) {
      list.push_back(to_real(item, needs_values, is_written));
    }
    return list;
  }
  return value;
}

bool covers_its_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().nbytes();
}

/// True if the values are those of the whole storage, which may have been resized.
bool has_all_values(const at::Tensor& tensor) {
  if (!is_simulated(tensor)) return false;
  const SimulatedStorage* storage = SimulatedStorage::find(tensor.storage());
  return storage != nullptr && storage->values &&
         storage->values.nbytes() == tensor.storage().nbytes();
}

/// The value of all elements, if the storage has only one.
std::optional<c10::Scalar> find_constant(const at::Tensor& tensor) {
  const SimulatedStorage* storage =
      is_simulated(tensor) ? SimulatedStorage::find(tensor.storage()) : nullptr;
  if (storage == nullptr || !storage->constant) return std::nullopt;
  // A view as another dtype reads other numbers, except for 0.
  const bool is_same = storage->constant_dtype == tensor.scalar_type();
  if (!is_same && storage->constant->toDouble() != 0) return std::nullopt;
  return storage->constant;
}

/// False if all elements are known only as a constant, which cannot be written to in part.
bool has_values(const at::Tensor& tensor) {
  const SimulatedStorage* storage = SimulatedStorage::find(tensor.storage());
  return storage != nullptr && storage->values;
}

bool is_integers(const IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         c10::isIntegralType(value.toTensor().scalar_type(), /*includeBool=*/false);
}

void keep_all(const IValue& simulated, const IValue& real) {
  if (simulated.isTensor()) {
    if (are_known(simulated.toTensor())) return;
    at::Tensor values = real.toTensor();
    if (values.defined() && values.scalar_type() != simulated.toTensor().scalar_type()) {
      const OutOfSight guard;
      values = values.to(simulated.toTensor().scalar_type());
    }
    keep(simulated.toTensor(), values);
  } else if (simulated.isTensorList()) {
    const auto list = simulated.toTensorVector();
    const auto values = real.toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) keep_all(list[i], values[i]);
  }
}

}  // namespace

bool are_known(const at::Tensor& tensor) {
  if (!tensor.defined()) return true;
  if (!is_simulated(tensor)) return !tensor.is_meta() && tensor.has_storage();
  return has_values(tensor) || find_constant(tensor);
}

at::Tensor find(const at::Tensor& tensor) {
  if (!is_simulated(tensor)) return tensor;
  const SimulatedStorage* storage = SimulatedStorage::find(tensor.storage());
  if (storage == nullptr) return {};
  if (!storage->values) {
    const auto constant = find_constant(tensor);
    if (!constant) return {};
    const OutOfSight guard;
    return at::full({}, *constant, tensor.scalar_type()).expand(tensor.sizes());
  }
  const OutOfSight guard;
  at::Tensor real = at::empty({0}, at::TensorOptions(tensor.scalar_type()));
  real.set_(storage->values, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  return real;
}

std::optional<c10::Scalar> find_item(const at::Tensor& tensor) {
  const at::Tensor known = find(tensor);
  if (!known.defined()) return std::nullopt;
  const OutOfSight guard;
  return known.item();
}

std::optional<c10::Scalar> find_common(const at::Tensor& tensor) {
  if (const auto constant = find_constant(tensor)) return constant;
  if (tensor.numel() == 0 || tensor.is_complex() || !are_known(tensor)) return std::nullopt;
  at::Tensor known = find(tensor);
  const OutOfSight guard;
  for (int64_t dim = 0; dim < known.dim(); ++dim) {
    if (known.stride(dim) == 0) known = known.narrow(dim, 0, 1);  // expanded
  }
  if (known.numel() > kMaxFloats) return std::nullopt;
  const at::Tensor first = known.flatten().select(0, 0);
  if (!known.eq(first).all().item().toBool()) return std::nullopt;
  return first.item();
}

void keep_common(const at::Tensor& tensor, const c10::Scalar& value) {
  if (!is_simulated(tensor) || tensor.is_complex() || !covers_its_storage(tensor)) return;
  SimulatedStorage* storage = SimulatedStorage::find(tensor.storage());
  if (storage == nullptr) return;
  const OutOfSight guard;
  if (is_few(tensor)) return keep(tensor, at::full(tensor.sizes(), value, tensor.scalar_type()));
  storage->values = {};
  storage->constant = at::full({}, value, tensor.scalar_type()).item();  // as the dtype rounds it
  storage->constant_dtype = tensor.scalar_type();
}

std::optional<int64_t> count_nonzero(const at::Tensor& tensor) {
  if (const auto constant = is_few(tensor) ? std::nullopt : find_constant(tensor)) {
    return constant->toDouble() != 0 ? tensor.numel() : 0;
  }
  const at::Tensor known = find(tensor);
  if (!known.defined()) return std::nullopt;
  const OutOfSight guard;
  return known.count_nonzero().item().toLong();
}

void keep(const at::Tensor& simulated, const at::Tensor& real) {
  if (!is_simulated(simulated) || !real.defined() || real.sizes() != simulated.sizes() ||
      !is_few(simulated) || !covers_its_storage(simulated)) {
    return;
  }
  SimulatedStorage* storage = SimulatedStorage::find(simulated.storage());
  if (storage == nullptr) return;
  if (real.strides() == simulated.strides() && covers_its_storage(real)) {
    storage->values = real.storage();
    storage->constant.reset();
    return;
  }
  const OutOfSight guard;
  at::Tensor copy = make_like(simulated);
  copy.copy_(real);
  storage->values = copy.storage();
  storage->constant.reset();
}

void keep_copy(const at::Tensor& simulated, const at::Tensor& real) {
  if (!is_few(real)) return;
  const OutOfSight guard;
  keep(simulated, real.clone());
}

bool can_follow(const OpTraits& traits, std::span<const IValue> arguments) {
  if (traits.is_view || !traits.is_cacheable) return false;
  if (traits.is_random && !traits.makes_values) return false;
  if (traits.makes_values) {
    if (traits.written == 0) return true;
    const at::Tensor& target = arguments[0].toTensor();
    return is_few(target) && (has_values(target) || covers_its_storage(target));
  }
  bool has_tensors = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = i < 64 && ((traits.written >> i) & 1) != 0;
    bool are_all_known = true;
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      has_tensors = true;
      are_all_known = are_all_known && is_few(tensor) && are_known(tensor) &&
                      (!is_written || !is_simulated(tensor) || has_values(tensor));
    });
    if (!are_all_known) return false;
  }
  return has_tensors;
}

std::vector<IValue> compute(const c10::OperatorHandle& op, const OpTraits& traits,
                            std::span<const IValue> arguments) {
  const OutOfSight guard;
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = i < 64 && ((traits.written >> i) & 1) != 0;
    stack.push_back(to_real(arguments[i], !traits.makes_values, is_written));
  }
  if (traits.device_argument >= 0 && !stack[traits.device_argument].isNone()) {
    stack[traits.device_argument] = c10::Device(c10::kCPU);
  }
  if (traits.pin_argument >= 0) stack[traits.pin_argument] = IValue();
  if (traits.generator_argument >= 0) stack[traits.generator_argument] = own_generator();
  if (traits.with_generator) {
    // The generator precedes the last four arguments: dtype, layout, device, pin_memory.
    stack.insert(stack.end() - 4, IValue(own_generator()));
    traits.with_generator->callBoxed(stack);
    return stack;
  }
  torch::jit::Stack results = stack;
  try {
    op.callBoxed(results);
  } catch (const c10::NotImplementedError&) {
    // A GPU may have a kernel for integers where the CPU has none (histc).
    if (traits.written != 0) throw;
    for (IValue& value : stack) {
      if (is_integers(value)) value = value.toTensor().to(at::kDouble);
    }
    op.callBoxed(stack);
    return stack;
  }
  return results;
}

void follow(const c10::OperatorHandle& op, const OpTraits& traits,
            std::span<const IValue> arguments, std::span<const IValue> results) {
  if (traits.written == 0) {
    bool are_few = !results.empty();
    for (const IValue& value : results) {
      are_few = are_few && (value.isTensor() || value.isTensorList());
      visit_tensors(
          value, [&](const at::Tensor& tensor) { are_few &= tensor.defined() && is_few(tensor); });
    }
    if (!are_few) return;
  }
  const std::vector<IValue> values = compute(op, traits, arguments);
  for (size_t i = 0; i < results.size(); ++i) keep_all(results[i], values[i]);
}

void forget(const IValue& value) {
  visit_tensors(value, [](const at::Tensor& tensor) {
    if (!is_simulated(tensor)) return;
    if (auto* storage = SimulatedStorage::find(tensor.storage())) {
      storage->values = {};
      storage->constant.reset();
    }
  });
}

void forget_written(const OpTraits& traits, std::span<const IValue> arguments) {
  for (size_t i = 0; i < arguments.size() && i < 64; ++i) {
    if (((traits.written >> i) & 1) == 0) continue;
    if (traits.changes_geometry && arguments[i].isTensor() &&
        has_all_values(arguments[i].toTensor())) {
      continue;
    }
    forget(arguments[i]);
  }
}

void reset_generator() {
  const std::lock_guard lock(own_generator().mutex());
  own_generator().set_current_seed(at::default_rng_seed_val);
}

}  // namespace tidegauge::simulation::known_values
