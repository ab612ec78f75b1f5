// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/simulator.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <sstream>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "capture/compat/dispatch_key.h"
#include "capture/hooks/boxed_tensors.h"
#include "capture/hooks/kernel_requests.h"
#include "simulate/attention_choice.h"
#include "simulate/collective_values.h"
#include "simulate/constant_values.h"
#include "simulate/data_dependent.h"
#include "simulate/known_values.h"
#include "simulate/op_traits.h"
#include "simulate/output_cache.h"
#include "simulate/routing.h"
#include "simulate/session_state.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using dispatch_key::kBelowOurs;
using torch::jit::Stack;

void run_really(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(dispatch_key::kBoth);
  op.redispatchBoxed(keys & kBelowOurs, stack);
}

/// The work handle of a collective that completes at once.
class DoneWork final : public c10d::Work {
 public:
  /// `first`: the first argument of the collective, the tensors that it writes to.
  explicit DoneWork(const IValue& first) {
    visit_tensors(first, [this](const at::Tensor& tensor) { results_.push_back(tensor); });
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    future->markCompleted(IValue(results_));
    return future;
  }

 private:
  std::vector<at::Tensor> results_;
};

/// The tensors among the arguments of a call.
struct Scan {
  bool has_simulated = false;
  at::Tensor real;                ///< a real tensor that is not a number, if there is one
  c10::Device device{c10::kCPU};  ///< the device of the results
  at::Tensor first;               ///< the first simulated tensor, on `device`
  bool has_meta = false;          ///< a meta tensor that is not simulated
};

/// torch combines a 0-dimensional CPU tensor with tensors on any device.
bool is_number(const at::Tensor& tensor) {
  return tensor.dim() == 0 && (is_simulated(tensor) ? as_simulated(tensor).counted_device().is_cpu()
                                                    : tensor.device().is_cpu());
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << " of shape " << tensor.sizes();
  return text.str();
}

void check_device(const OpTraits& traits, Scan& scan, const at::Tensor& tensor) {
  const c10::Device device = as_simulated(tensor).counted_device();
  if (!scan.has_simulated || (is_number(scan.first) && !is_number(tensor))) {
    scan.has_simulated = true;
    scan.device = device;
    scan.first = tensor;
    return;
  }
  if (device == scan.device || is_number(tensor) || traits.mixes_devices ||
      traits.kind == OpKind::Indexed || traits.kind == OpKind::Collective) {
    return;
  }
  TORCH_CHECK(false,
              "Expected all tensors to be on the same device, but found at least two "
              "devices, ",
              scan.device, " and ", device, "! (", traits.name, " of ", describe(scan.first),
              " and ", describe(tensor), ", both simulated)");
}

Scan scan(const OpTraits& traits, std::span<const IValue> arguments) {
  Scan found;
  for (const IValue& value : arguments) {
    visit_tensors(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (is_simulated(tensor)) {
        check_device(traits, found, tensor);
      } else if (tensor.is_meta()) {
        found.has_meta = true;
      } else if (!is_number(tensor)) {
        found.real = tensor;
      }
    });
  }
  if (found.has_meta && !found.has_simulated) found.device = c10::kMeta;
  if (traits.device_argument >= 0 && arguments[traits.device_argument].isDevice()) {
    found.device = arguments[traits.device_argument].toDevice();
    if (!found.device.is_cpu() && !found.device.has_index()) {
      const c10::DeviceType type = found.device.type();
      found.device = c10::impl::hasDeviceGuardImpl(type)
                         ? c10::impl::getDeviceGuardImpl(type)->getDevice()
                         : c10::Device(type, 0);
    }
  }
  return found;
}

bool asks_for_integers(const OpTraits& traits, std::span<const IValue> arguments) {
  if (traits.dtype_argument < 0 || !arguments[traits.dtype_argument].isInt()) return false;
  return at::isIntegralType(arguments[traits.dtype_argument].toScalarType(), /*includeBool=*/true);
}

/// True if the op has no simulated arguments but makes a new tensor that must be simulated.
bool makes_simulated(const OpTraits& traits, const Scan& found, std::span<const IValue> arguments) {
  if (!is_on() || is_paused(Made::All) || found.device.is_meta()) return false;
  if (is_paused(Made::Integers) && asks_for_integers(traits, arguments)) return false;
  if (traits.kind == OpKind::Fresh) return true;
  if (traits.device_argument < 0) return false;
  return !found.real.defined() || !found.device.is_cpu();
}

/// Names the argument that is real while another one is simulated.
[[noreturn]] void refuse_real(const OperatorHandle& op, const OpTraits& traits, const Scan& found,
                              std::span<const IValue> arguments) {
  std::string name = "?";
  for (size_t i = 0; i < arguments.size(); ++i) {
    visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
      if (tensor.is_same(found.real)) name = op.schema().arguments()[i].name();
    });
  }
  TORCH_CHECK(false, traits.name, ": argument '", name, "' is a real tensor (",
              describe(found.real), "), but another argument is simulated (", describe(found.first),
              ")", at_line(),
              ". A simulated tensor has no data to compute with. Make the real tensor inside "
              "`simulate`, or convert it with `simulation.adopt(tensor)`");
}

/// True if the op only copies real data into a simulated tensor (load_state_dict): allowed.
bool only_reads_real(const OpTraits& traits, std::span<const IValue> arguments) {
  return traits.mixes_devices && traits.written == 1 && arguments[0].isTensor() &&
         is_simulated(arguments[0].toTensor());
}

/// Replaces the real tensors among the arguments by meta tensors, for the meta kernel.
void replace_real(std::span<IValue> arguments) {
  for (IValue& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && !is_simulated(value.toTensor()) &&
        !value.toTensor().is_meta() && value.toTensor().dim() > 0) {
      value = to_meta(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list = value.toTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        const at::Tensor& tensor = list.get(i);
        if (!is_simulated(tensor) && !tensor.is_meta()) list.set(i, to_meta(tensor));
      }
      value = list;
    }
  }
}

void simulate_results(const OpTraits& traits, std::span<IValue> results, c10::Device device) {
  // Results that share a storage still share one afterwards.
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> replaced;
  const auto convert = [&](const at::Tensor& tensor) {
    TORCH_CHECK_NOT_IMPLEMENTED(!tensor.defined() || tensor.layout() == c10::kStrided, traits.name,
                                " makes a tensor of layout ", tensor.layout(), at_line(),
                                ", which cannot be simulated: only dense tensors can");
    if (!tensor.defined() || is_simulated(tensor) || !tensor.has_storage() ||
        tensor.key_set().has(DispatchKey::Python) || tensor.storage().device_type() != c10::kMeta) {
      return tensor;
    }
    c10::StorageImpl* old = tensor.storage().unsafeGetStorageImpl();
    at::Tensor result = to_simulated(tensor, device);
    const auto it = std::find_if(replaced.begin(), replaced.end(),
                                 [&](const auto& pair) { return pair.first == old; });
    if (it != replaced.end()) {
      result.unsafeGetTensorImpl()->set_storage_keep_dtype(it->second);
    } else {
      replaced.emplace_back(old, result.storage());
    }
    return result;
  };
  for (IValue& value : results) {
    if (value.isTensor()) {
      value = convert(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(convert(tensor));
      value = list;
    }
  }
}

/// True for an op that returns nothing: without a meta kernel it needs no simulation.
bool only_writes(const OperatorHandle& op, const OpTraits& traits) {
  return traits.written != 0 && op.schema().returns().empty();
}

/// Runs torch's meta kernel.
void run_meta(const OperatorHandle& op, const OpTraits& traits, const Scan& found,
              DispatchKeySet keys, Stack* stack) {
  const size_t base = stack->size() - traits.argument_count;
  if (traits.kind == OpKind::Decomposed) {
    return op.redispatchBoxed((keys & kBelowOurs) | DispatchKeySet(DispatchKey::Meta), stack);
  }
  if (traits.device_argument >= 0 &&
      ((*stack)[base + traits.device_argument].isDevice() || !found.has_simulated)) {
    (*stack)[base + traits.device_argument] = c10::Device(c10::kMeta);
  }
  if (traits.pin_argument >= 0) (*stack)[base + traits.pin_argument] = IValue();
  // Not IncludeDispatchKeyGuard: in older versions of torch, its end leaves the bit of the meta
  // backend behind.
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard guard(local.included_ | DispatchKeySet(DispatchKey::Meta),
                                               local.excluded_ | dispatch_key::kBoth);
  if (found.real.defined()) replace_real(std::span(*stack).subspan(base));
  try {
    op.redispatchBoxed((keys & kBelowOurs) | DispatchKeySet(DispatchKey::Meta), stack);
  } catch (const c10::NotImplementedError& error) {
    if (only_writes(op, traits)) {
      stack->resize(base);
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, traits.name, " cannot be simulated", at_line(),
        ": this version of torch has no meta kernel for it. Register one with ",
        "torch.library.register_fake, or run the op outside `simulate`. torch says: ",
        error.what_without_backtrace());
  }
}

bool asks_for_pinned(const OpTraits& traits, std::span<const IValue> arguments) {
  if (traits.pin_argument < 0) return false;
  const IValue& value = arguments[traits.pin_argument];
  return value.isBool() && value.toBool();
}

void mark_pinned(const IValue& value) {
  visit_tensors(value, [](const at::Tensor& tensor) {
    if (!is_simulated(tensor)) return;
    if (auto* storage = SimulatedStorage::find(tensor.storage())) storage->is_pinned = true;
  });
}

class Call {
 public:
  Call(const OperatorHandle& op, OpTraits& traits, DispatchKeySet keys, Stack* stack, Scan found)
      : op_(op),
        traits_(traits),
        keys_(keys),
        stack_(stack),
        base_(stack->size() - traits.argument_count),
        found_(std::move(found)) {}

  void run() {
    switch (traits_.kind) {
      case OpKind::Item:
        return give(read_item(traits_, argument(0)));
      case OpKind::Equal:
        return give(compare(op_, traits_, arguments()));
      case OpKind::Dynamic:
        return give_all(run_dynamic(op_, traits_, arguments(), found_.device));
      case OpKind::Collective:
        return run_collective();
      case OpKind::Wait:
        return give(IValue(argument(0)));
      case OpKind::Choice:
        if (found_.device.is_cpu()) return op_.redispatchBoxed(keys_ & kBelowOurs, stack_);
        return give(choose_attention(
            argument(0), argument(1), argument(2), arguments()[3].toOptional<at::Tensor>(),
            arguments()[4].toDouble(), arguments()[5].toBool(), {}, arguments()[7].toBool()));
      case OpKind::Fresh:
        return run_fresh();
      case OpKind::IsPinned:
        return give(is_pinned(argument(0)));
      case OpKind::RecordStream:
        return stack_->resize(base_);
      case OpKind::Pin:
        return run_pin();
      case OpKind::Indexed:
        expand_masks(argument(0), (*stack_)[base_ + 1]);
        return run_plain();
      default:
        return run_plain();
    }
  }

 private:
  std::span<const IValue> arguments() const {
    return std::span<const IValue>(*stack_).subspan(base_);
  }
  const at::Tensor& argument(int position) const { return (*stack_)[base_ + position].toTensor(); }
  void give(IValue result) {
    stack_->resize(base_);
    stack_->push_back(std::move(result));
  }
  void give_all(std::vector<IValue> results) {
    stack_->resize(base_);
    std::move(results.begin(), results.end(), std::back_inserter(*stack_));
  }

  static bool is_pinned(const at::Tensor& tensor) {
    const SimulatedStorage* storage = SimulatedStorage::find(tensor.storage());
    return storage != nullptr && storage->is_pinned;
  }

  /// Only this rank exists, and a collective does not change shapes.
  void run_collective() {
    collective_values::follow(traits_, arguments(), {});
    IValue first = (*stack_)[base_];
    stack_->resize(base_);
    if (traits_.result_count == 0) return;
    c10::intrusive_ptr<c10d::Work> work = c10::make_intrusive<DoneWork>(first);
    if (traits_.result_count == 2) stack_->push_back(std::move(first));
    stack_->emplace_back(std::move(work));
  }

  /// torch.tensor made the real argument from Python numbers without calling an op that we see.
  void run_fresh() {
    const at::Tensor real = argument(0);
    if (is_simulated(real)) return give(real);
    at::Tensor result = to_simulated(to_meta(real), real.device());
    known_values::keep(result, real);
    give(result);
  }

  void run_pin() {
    const at::Tensor source = argument(0);
    if (is_pinned(source)) return give(source);
    at::Tensor result = to_simulated(to_meta(source), found_.device);
    mark_pinned(result);
    give(result);
  }

  /// Only the kernel's own requests count, not those of ops that the simulation runs instead.
  void run_plain() {
    KernelRequests& requests = KernelRequests::of_this_op();
    const bool is_wanted = requests.is_wanted();
    const bool has_kernel =
        traits_.kernel_memory != nullptr && is_wanted && found_.device.is_cuda();
    std::vector<IValue> asked;
    if (has_kernel) asked.assign(arguments().begin(), arguments().end());
    requests.set_wanted(false);
    run_values();
    requests.set_wanted(is_wanted);
    if (!has_kernel) return;
    requests.set_device(found_.device);
    traits_.kernel_memory({asked, std::span<const IValue>(*stack_).subspan(base_)}, requests);
  }

  void run_values() {
    const bool follows = !traits_.is_collective && known_values::can_follow(traits_, arguments());
    const auto constant = !follows || traits_.makes_values
                              ? constant_values::find_result(op_, traits_, arguments())
                              : std::nullopt;
    const bool is_pinned = asks_for_pinned(traits_, arguments());
    std::vector<IValue> saved;
    if (follows || traits_.written != 0 || traits_.is_choice || traits_.is_collective)
      saved.assign(arguments().begin(), arguments().end());
    run_shapes();
    const std::span<const IValue> results = std::span<const IValue>(*stack_).subspan(base_);
    if (follows) {
      known_values::follow(op_, traits_, saved, results);
    } else if (traits_.written != 0) {
      known_values::forget_written(traits_, saved);
    }
    if (constant && results[0].isTensor()) {
      constant_values::keep(results[0].toTensor(), *constant);
    }
    if (traits_.is_collective) collective_values::follow(traits_, saved, results);
    if (traits_.is_choice) route(traits_, saved, results);
    if (is_pinned) {
      for (const IValue& result : results) mark_pinned(result);
    }
  }

  void run_shapes() {
    std::optional<CallKey> key;
    if (traits_.is_cacheable && !found_.real.defined()) {
      key = make_call_key(traits_, arguments());
    }
    if (key) {
      if (const auto entry = OutputCache::find(*key)) {
        if (entry->shape) {
          std::vector<IValue> results;
          build(*entry->shape, arguments(), found_.device, results);
          traits_.hits.fetch_add(1, std::memory_order_relaxed);
          return give_all(std::move(results));
        }
        key.reset();
      }
    }
    std::vector<IValue> asked;
    if (key || traits_.correction != nullptr) asked.assign(arguments().begin(), arguments().end());
    if (traits_.check != nullptr) traits_.check(op_.schema(), arguments());
    if (traits_.fused_op != nullptr && found_.device.is_cuda()) {
      give_all(traits_.fused_op(arguments()));
    } else {
      run_meta(op_, traits_, found_, keys_, stack_);
    }
    const std::span<IValue> results = std::span(*stack_).subspan(base_);
    simulate_results(traits_, results, found_.device);
    if (traits_.correction != nullptr) traits_.correction(asked, results);
    if (!key) return;
    // An op that changed the sizes or strides of an argument cannot be answered from the cache.
    const bool is_same = make_call_key(traits_, asked) == key;
    OutputCache::add(std::move(*key),
                     {is_same ? simulation::describe(asked, results) : std::nullopt});
  }

  const OperatorHandle& op_;
  OpTraits& traits_;
  const DispatchKeySet keys_;
  Stack* const stack_;
  const size_t base_;
  const Scan found_;
};

/// True inside a meta kernel of torch: the ops that it calls must not be simulated.
bool is_within_meta_kernel() {
  return c10::impl::tls_local_dispatch_key_set().included_.has_backend(
      c10::BackendComponent::MetaBit);
}

}  // namespace

void run(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  if (is_within_meta_kernel()) return run_really(op, keys, stack);
  OpTraits& traits = OpTraits::find(op);
  const auto is_fused = [&] {
    if (traits.fused_op == nullptr) return false;
    return scan(traits, std::span<const IValue>(*stack).last(traits.argument_count))
        .device.is_cuda();
  };
  if (traits.kind == OpKind::Composite && !is_fused()) {
    traits.calls.fetch_add(1, std::memory_order_relaxed);
    const auto arguments = std::span<const IValue>(*stack).last(traits.argument_count);
    const auto constant = constant_values::find_result(op, traits, arguments);
    // Not a kernel of the device, which would read memory.
    op.redispatchBoxed(DispatchKeySet(kBackendOfComposites), stack);
    if (constant) constant_values::keep(stack->back().toTensor(), *constant);
    return;
  }
  const auto arguments = std::span<const IValue>(*stack).last(traits.argument_count);
  Scan found = scan(traits, arguments);
  if (!found.has_simulated && !makes_simulated(traits, found, arguments)) {
    if (is_paused(Made::Integers) && !found.device.is_cpu() && asks_for_integers(traits, arguments))
      (*stack)[stack->size() - traits.argument_count + traits.device_argument] =
          c10::Device(c10::kCPU);
    return run_really(op, keys, stack);
  }
  TORCH_CHECK(is_on(), traits.name, " was called on a simulated tensor (", describe(found.first),
              ") after its simulation has ended; use it inside `simulate`");
  if (found.has_simulated && found.real.defined() && !only_reads_real(traits, arguments)) {
    refuse_real(op, traits, found, arguments);
  }
  traits.calls.fetch_add(1, std::memory_order_relaxed);
  Call(op, traits, keys, stack, std::move(found)).run();
}

}  // namespace tidegauge::simulation
