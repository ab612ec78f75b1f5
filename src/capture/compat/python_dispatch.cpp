// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/python_dispatch.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>

#include <mutex>
#include <string>
#include <utility>

#include "capture/compat/dispatch_key.h"

namespace tidegauge::python_dispatch {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using c10::TensorImpl;
using c10::impl::PyInterpreterVTable;
using torch::jit::Stack;

constinit const PyInterpreterVTable* original_vtable = nullptr;

/// Undoes the exclusion of our key.
class WithOurKey {
 public:
  WithOurKey() { set_excluded(false); }
  ~WithOurKey() { set_excluded(true); }
  WithOurKey(const WithOurKey&) = delete;
  WithOurKey& operator=(const WithOurKey&) = delete;

 private:
  static void set_excluded(bool is_excluded) {
    c10::impl::tls_set_dispatch_key_excluded(dispatch_key::kOurs, is_excluded);
  }
};

/// The functions that torch calls in the interpreter of Python, with our `dispatch`.
class Decorated final : public PyInterpreterVTable {
 public:
  Decorated(const PyInterpreterVTable& original, Handler handler)
      : original_(original), handler_(handler) {}

  void dispatch(const OperatorHandle& op, Stack* stack) const override {
    if (!PassingOn::take()) return handler_(op, stack);
    const WithOurKey with_our_key;
    handler_(op, stack);
  }

  // All other functions pass the call on.
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
  const PyInterpreterVTable& original_;
  const Handler handler_;
};

}  // namespace

void dispatch(const OperatorHandle& op, Stack* stack) { original_vtable->dispatch(op, stack); }

void install(Handler handler) {
  static std::once_flag once;
  std::call_once(once, [handler] {
    c10::impl::PyInterpreter* interpreter = c10::impl::getGlobalPyInterpreter();
    if (interpreter == nullptr) return;  // a program without Python
    original_vtable = interpreter->vtable_;
    interpreter->vtable_ = new Decorated(*original_vtable, handler);
  });
}

}  // namespace tidegauge::python_dispatch
