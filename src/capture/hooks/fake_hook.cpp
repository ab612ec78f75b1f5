// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/fake_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "capture/hooks/boxed_tensors.h"
#include "capture/hooks/op_watch.h"
#include "capture/storages/storage_capture.h"

namespace tidegauge::fake_hook {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using c10::TensorImpl;
using c10::impl::PyInterpreterVTable;
using c10::impl::TorchDispatchModeKey;
using c10::impl::TorchDispatchModeTLS;
using torch::jit::Stack;

bool is_switched_on() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_.has(DispatchKey::Fake) && !keys.excluded_.has(DispatchKey::Fake);
}

/// A tensor that takes itself apart (DTensor) calls the op again with its parts.
bool has_wrapper_argument(const OperatorHandle& op, const Stack& stack) {
  bool found = false;
  visit_arguments(op.schema(), stack, [&](const at::Tensor& tensor) {
    found |= tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(DispatchKey::Python) &&
             !is_fake_tensor(tensor);
  });
  return found;
}

/// Under a real process group it hands on its argument; its fake kernel would make another tensor.
bool waits_for_a_collective(const OperatorHandle& op) {
  return op.schema().name() == "_c10d_functional::wait_tensor";
}

/// Python's interpreter as torch sees it, with an eye on `dispatch`.
class Decorated final : public PyInterpreterVTable {
 public:
  explicit Decorated(const PyInterpreterVTable& original) : original_(original) {}

  void dispatch(const OperatorHandle& op, Stack* stack) const override {
    const void* mode = is_switched_on() ? active_mode() : nullptr;
    if (mode == nullptr || TorchDispatchModeTLS::stack_len() != 1 ||
        has_wrapper_argument(op, *stack)) {
      original_.dispatch(op, stack);
      return;
    }
    const c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::Fake);
    if (!is_tracked(mode)) return original_.dispatch(op, stack);
    if (waits_for_a_collective(op)) return;
    observe(op, stack, mode);
  }

  // The rest is handed on.
  std::string name() const override { return original_.name(); }
  void incref(PyObject* object) const override { original_.incref(object); }
  void decref(PyObject* object) const override { original_.decref(object); }
  bool try_incref(const c10::impl::PyObjectSlot& slot) const override {
    return original_.try_incref(slot);
  }
  size_t refcnt(PyObject* object) const override { return original_.refcnt(object); }
  c10::intrusive_ptr<TensorImpl> detach(const TensorImpl* self) const override {
    return original_.detach(self);
  }
  void reportErrorCallback(PyObject* callback, DispatchKey key) const override {
    original_.reportErrorCallback(callback, key);
  }
  void python_op_registration_trampoline(const OperatorHandle& op, DispatchKey key,
                                         c10::DispatchKeySet keys, Stack* stack, bool with_keyset,
                                         bool with_op) const override {
    original_.python_op_registration_trampoline(op, key, keys, stack, with_keyset, with_op);
  }
  void throw_abstract_impl_not_imported_error(std::string op, const char* module,
                                              const char* context) const override {
    original_.throw_abstract_impl_not_imported_error(std::move(op), module, context);
  }
  void python_dispatcher(const OperatorHandle& op, c10::DispatchKeySet keys,
                         Stack* stack) const override {
    original_.python_dispatcher(op, keys, stack);
  }
  bool is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return original_.is_contiguous(self, format);
  }
  c10::SymBool sym_is_contiguous(const TensorImpl* self, at::MemoryFormat format) const override {
    return original_.sym_is_contiguous(self, format);
  }
  bool is_strides_like(const TensorImpl* self, at::MemoryFormat format) const override {
    return original_.is_strides_like(self, format);
  }
  bool is_non_overlapping_and_dense(const TensorImpl* self) const override {
    return original_.is_non_overlapping_and_dense(self);
  }
  c10::Device device(const TensorImpl* self) const override { return original_.device(self); }
  int64_t dim(const TensorImpl* self) const override { return original_.dim(self); }
  c10::IntArrayRef strides(const TensorImpl* self) const override {
    return original_.strides(self);
  }
  c10::IntArrayRef sizes(const TensorImpl* self) const override { return original_.sizes(self); }
  c10::SymIntArrayRef sym_sizes(const TensorImpl* self) const override {
    return original_.sym_sizes(self);
  }
  c10::Layout layout(const TensorImpl* self) const override { return original_.layout(self); }
  int64_t numel(const TensorImpl* self) const override { return original_.numel(self); }
  c10::SymInt sym_numel(const TensorImpl* self) const override { return original_.sym_numel(self); }
  c10::SymIntArrayRef sym_strides(const TensorImpl* self) const override {
    return original_.sym_strides(self);
  }
  c10::SymInt sym_storage_offset(const TensorImpl* self) const override {
    return original_.sym_storage_offset(self);
  }
  void trace_gpu_event_creation(c10::DeviceType device, uintptr_t event) const override {
    original_.trace_gpu_event_creation(device, event);
  }
  void trace_gpu_event_deletion(c10::DeviceType device, uintptr_t event) const override {
    original_.trace_gpu_event_deletion(device, event);
  }
  void trace_gpu_event_record(c10::DeviceType device, uintptr_t event,
                              uintptr_t stream) const override {
    original_.trace_gpu_event_record(device, event, stream);
  }
  void trace_gpu_event_wait(c10::DeviceType device, uintptr_t event,
                            uintptr_t stream) const override {
    original_.trace_gpu_event_wait(device, event, stream);
  }
  void trace_gpu_memory_allocation(c10::DeviceType device, uintptr_t ptr) const override {
    original_.trace_gpu_memory_allocation(device, ptr);
  }
  void trace_gpu_memory_deallocation(c10::DeviceType device, uintptr_t ptr) const override {
    original_.trace_gpu_memory_deallocation(device, ptr);
  }
  void trace_gpu_stream_creation(c10::DeviceType device, uintptr_t stream) const override {
    original_.trace_gpu_stream_creation(device, stream);
  }
  void trace_gpu_device_synchronization(c10::DeviceType device) const override {
    original_.trace_gpu_device_synchronization(device);
  }
  void trace_gpu_stream_synchronization(c10::DeviceType device, uintptr_t stream) const override {
    original_.trace_gpu_stream_synchronization(device, stream);
  }
  void trace_gpu_event_synchronization(c10::DeviceType device, uintptr_t event) const override {
    original_.trace_gpu_event_synchronization(device, event);
  }
  void reset_backward_hooks(const TensorImpl* self) const override {
    original_.reset_backward_hooks(self);
  }

 private:
  static bool is_tracked(const void* mode) {
    const auto lock = StorageCapture::lock();
    return StorageCapture::get().is_fake_mode_tracked(mode);
  }

  void observe(const OperatorHandle& op, Stack* stack, const void* mode) const {
    const c10::FunctionSchema& schema = op.schema();
    const OpFacts facts = OpFacts::read(schema);
    OpWatch watch(facts, mode);
    if (watch.wants_arguments()) {
      visit_arguments(schema, *stack,
                      [&](const at::Tensor& tensor) { watch.add_argument(tensor); });
    }
    original_.dispatch(op, stack);
    visit_results(schema, *stack,
                  [mode](const at::Tensor& tensor, size_t) { claim_fake(tensor, mode); });
    OpWatch::Results results(watch);
    visit_results(schema, *stack, [&](const at::Tensor& tensor, size_t position) {
      results.tell(tensor, position);
    });
  }

  const PyInterpreterVTable& original_;
};

constinit std::atomic<const void* (*)(const at::Tensor&)> find_mode{nullptr};

}  // namespace

const void* active_mode() {
  const auto mode = TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FAKE);
  return mode ? (*mode)->ptr(c10::impl::getGlobalPyInterpreter()) : nullptr;
}

const void* mode_of(const at::Tensor& tensor) {
  const auto find = find_mode.load(std::memory_order_relaxed);
  return find != nullptr ? find(tensor) : nullptr;
}

void connect_python(const void* (*find)(const at::Tensor&)) { find_mode = find; }

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::impl::PyInterpreter* interpreter = c10::impl::getGlobalPyInterpreter();
    interpreter->vtable_ = new Decorated(*interpreter->vtable_);
  });
}

void enter_mode() {
  if (is_switched_on()) install();
}

}  // namespace tidegauge::fake_hook
