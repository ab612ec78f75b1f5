// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/op_route.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/compat/dispatch_key.h"
#include "capture/compat/torch_version.h"
#include "tidegauge/errors.h"

#if TIDEGAUGE_TORCH_AT_LEAST(2, 15)
#include <c10/core/impl/FakeTensorModeTLS.h>
#endif

namespace tidegauge::op_route {
namespace {

using c10::Dispatcher;
using c10::DispatchKeySet;
using c10::KernelFunction;
using c10::OperatorHandle;
using torch::jit::Stack;

KernelFunction& our_handler() {
  static auto* handler = new KernelFunction;
  return *handler;
}

bool has_fallback(c10::DispatchKey key) {
  return Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
}

/// The handler of the key that simulated tensors carry.
void handle_carried(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(dispatch_key::kOnlyCarried);
  const c10::impl::IncludeDispatchKeyGuard include(dispatch_key::kOnlyOurs);
  const DispatchKeySet hidden = c10::impl::tls_local_dispatch_key_set().excluded_;
  op.redispatchBoxed(((keys & dispatch_key::kBelowCarried) | dispatch_key::kOnlyOurs) - hidden,
                     stack);
}

/// True in torch's own fake mode, in C++.
bool is_in_native_fake_mode() {
#if TIDEGAUGE_TORCH_AT_LEAST(2, 15)
  return c10::impl::FakeTensorModeTLS::get_state() != nullptr;
#else
  return false;
#endif
}

bool has_fake_argument(const OperatorHandle& op, const Stack& stack) {
  const auto is_fake = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.key_set().has(dispatch_key::kOurs);
  };
  const size_t count = op.schema().arguments().size();
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(count); value != stack.end();
       ++value) {
    if (value->isTensor() && is_fake(value->toTensor())) return true;
    if (!value->isTensorList()) continue;
    for (const at::Tensor& tensor : value->toTensorVector()) {
      if (is_fake(tensor)) return true;
    }
  }
  return false;
}

void add_kernels();

/// Our kernel for one op, in front of the one that torch would call.
class FrontKernel final : public c10::OperatorKernel {
 public:
  explicit FrontKernel(const OperatorHandle& op)
      : ours_(our_handler()), original_(op.getComputedKernelForDispatchKey(dispatch_key::kOurs)) {}

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    add_kernels();
    if (is_in_native_fake_mode() || has_fake_argument(op, *stack)) {
      return original_.callBoxed(op, keys, stack);
    }
    ours_.callBoxed(op, keys, stack);
  }

 private:
  const KernelFunction ours_;
  const c10::SafeKernelFunction original_;
};

/// Gathers the ops that have no kernel of ours yet. The dispatcher calls it under its lock, so the
/// kernels are added later: before the next op that we see.
class NewOps final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const OperatorHandle& op) override {
    const std::lock_guard lock(mutex_);
    ops_.push_back(op);
    is_empty_ = false;
  }
  void onOperatorDeregistered(const OperatorHandle&) override {}

  bool is_empty() const { return is_empty_.load(std::memory_order_relaxed); }
  std::vector<OperatorHandle> take() {
    const std::lock_guard lock(mutex_);
    is_empty_ = true;
    return std::exchange(ops_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<OperatorHandle> ops_;
  std::atomic<bool> is_empty_{true};
};

/// Null if our fallback handles every op. Never destroyed, like the kernels: ops may run until the
/// process ends.
constinit NewOps* new_ops = nullptr;

constinit bool has_carried_key = false;  ///< our handler of simulated tensors is registered

struct Silent final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// The ops with a front kernel that were there at the installation.
std::unordered_set<c10::OperatorName>& fronted_ops() {
  static auto* ops = new std::unordered_set<c10::OperatorName>;
  return *ops;
}

void put_in_front(const OperatorHandle& op) {
  static auto* kernels = new std::vector<c10::RegistrationHandleRAII>;
  static std::mutex mutex;
  auto kernel = KernelFunction::makeFromBoxedFunctor(std::make_unique<FrontKernel>(op));
  Silent silent;
  // torch warns of two kernels for one op.
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const std::lock_guard lock(mutex);
  kernels->push_back(Dispatcher::singleton().registerImpl(op.operator_name(), dispatch_key::kOurs,
                                                          std::move(kernel), std::nullopt, nullptr,
                                                          "tidegauge"));
}

void add_kernels() {
  if (new_ops == nullptr || new_ops->is_empty()) [[likely]]
    return;
  for (const OperatorHandle& op : new_ops->take()) put_in_front(op);
}

}  // namespace

void install(const KernelFunction& handler) {
  static auto* fallbacks = new std::vector<c10::RegistrationHandleRAII>;
  auto& dispatcher = Dispatcher::singleton();
  our_handler() = handler;
  if (!has_fallback(dispatch_key::kCarried)) {
    fallbacks->push_back(dispatcher.registerFallback(
        dispatch_key::kCarried, KernelFunction::makeFromBoxedFunction<&handle_carried>(),
        "tidegauge"));
    has_carried_key = true;
  }
  if (has_fallback(dispatch_key::kOurs)) {
    auto listener = std::make_unique<NewOps>();
    new_ops = listener.get();
    fallbacks->push_back(dispatcher.addRegistrationListener(std::move(listener)));
    return add_kernels();
  }
  for (const c10::OperatorName& name :
       dispatcher.getAllOpNamesForDispatchKey(dispatch_key::kOurs)) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema()) continue;
    put_in_front(*op);
    fronted_ops().insert(name);
  }
  fallbacks->push_back(dispatcher.registerFallback(dispatch_key::kOurs, handler, "tidegauge"));
}

bool has_front_kernel(const OperatorHandle& op) {
  return new_ops != nullptr || fronted_ops().contains(op.operator_name());
}

void require_carried_key() {
  if (has_carried_key) return;
  throw NotSupported(
      "another library has registered a fallback for torch's dispatch key DeferredInit, which "
      "tidegauge needs for simulated tensors; load tidegauge without that library");
}

}  // namespace tidegauge::op_route
