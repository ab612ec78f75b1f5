// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/simulated_tensor.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "capture/hooks/op_hook.h"
#include "core/util/spin_lock.h"

namespace tidegauge::simulation {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

struct Alive {
  SpinLock mutex;
  SimulatedStorage* first = nullptr;
};
Alive& alive() {
  static auto* all = new Alive;
  return *all;
}

c10::Allocator* meta_allocator() {
  static c10::Allocator* const allocator = c10::GetAllocator(c10::kMeta);
  return allocator;
}

}  // namespace

SimulatedStorage::SimulatedStorage(int64_t size_bytes, c10::Device device)
    : VirtualStorage(device, use_byte_size_t(), size_bytes, meta_allocator()->allocate(0),
                     meta_allocator(), /*resizable=*/true) {
  set_throw_on_mutable_data_ptr();
  op_hook::hold_runner();
  const std::lock_guard lock(alive().mutex);
  next_ = std::exchange(alive().first, this);
  if (next_ != nullptr) next_->previous_ = this;
}

SimulatedStorage::~SimulatedStorage() {
  {
    const std::lock_guard lock(alive().mutex);
    (previous_ != nullptr ? previous_->next_ : alive().first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  op_hook::release_runner();
}

void SimulatedStorage::end_all() {
  std::vector<c10::Storage> values;  // destroyed after the lock is released
  const std::lock_guard lock(alive().mutex);
  for (SimulatedStorage* each = alive().first; each != nullptr; each = each->next_) {
    if (each->values) values.push_back(std::move(each->values));
    // Not earlier: torch compares data addresses to find tensors that share memory.
    each->release_data_and_set_meta_custom_data_ptr_error_msg_(
        "cannot read the data of a simulated tensor after its simulation has ended: simulated "
        "tensors hold no data");
  }
}

void SimulatedStorage::release_resources() {
  values = {};
  StorageImpl::release_resources();
}

c10::Storage SimulatedStorage::make(int64_t size_bytes, c10::Device device) {
  return c10::Storage(c10::make_intrusive<SimulatedStorage>(size_bytes, device));
}

SimulatedStorage* SimulatedStorage::find(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (impl == nullptr || typeid(*impl) != typeid(SimulatedStorage)) return nullptr;
  return static_cast<SimulatedStorage*>(impl);
}

SimulatedTensor::SimulatedTensor(c10::Storage storage, DispatchKeySet keys, caffe2::TypeMeta dtype,
                                 c10::Device device)
    : TensorImpl(std::move(storage), keys, dtype), counted_device_(device) {
  key_set_ = key_set_.add(dispatch_key::kCarried);
  set_custom_device(true);
}

SimulatedTensor::SimulatedTensor(const SimulatedTensor& base, DispatchKeySet lazy_bits,
                                 caffe2::TypeMeta dtype)
    : TensorImpl(VIEW, c10::Storage(base.unsafe_storage()),
                 (base.key_set() - kLazyBits - c10::python_ks) | lazy_bits, dtype),
      counted_device_(base.counted_device_) {
  set_custom_device(true);
}

SimulatedTensor::SimulatedTensor(ForCopy, const SimulatedTensor& other)
    : TensorImpl(other.key_set(), other.dtype(), other.device_opt_),
      counted_device_(other.counted_device_) {
  set_custom_device(true);
}

c10::Device SimulatedTensor::device_custom() const {
  return c10::impl::tls_is_dispatch_key_excluded(dispatch_key::kOurs) ? device_default()
                                                                      : counted_device_;
}

template <typename Version>
c10::intrusive_ptr<c10::TensorImpl> SimulatedTensor::copy(Version&& version,
                                                          bool allow_change) const {
  const bool is_pythons =
      c10::impl::TorchDispatchModeTLS::stack_len() > 0 || key_set_.has(DispatchKey::Python);
  if (is_pythons && !c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Python)) {
    return TensorImpl::shallow_copy_and_detach(std::forward<Version>(version), allow_change);
  }
  auto result = c10::intrusive_ptr<SimulatedTensor>::make(ForCopy{}, *this);
  copy_tensor_metadata(this, result.get(), std::forward<Version>(version), allow_change);
  return result;
}

c10::intrusive_ptr<c10::TensorImpl> SimulatedTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_change) const {
  return copy(version, allow_change);
}
c10::intrusive_ptr<c10::TensorImpl> SimulatedTensor::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_change) const {
  return copy(std::move(version), allow_change);
}

void SimulatedTensor::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) {
  TORCH_CHECK(typeid(*other) == typeid(SimulatedTensor),
              "cannot replace the memory of a simulated tensor by that of a real one; convert the "
              "real tensor with `simulation.adopt(tensor)`");
  TensorImpl::shallow_copy_from(other);
  counted_device_ = static_cast<const SimulatedTensor*>(other.get())->counted_device_;
}

DispatchKeySet keys_of(caffe2::TypeMeta dtype, c10::Device device) {
  return DispatchKeySet(c10::computeDispatchKey(dtype.toScalarType(), c10::kStrided, device));
}

at::Tensor to_meta(const at::Tensor& tensor) {
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

at::Tensor to_simulated(const at::Tensor& meta, c10::Device device) {
  const c10::TensorImpl* source = meta.unsafeGetTensorImpl();
  c10::Storage storage = source->unsafe_storage();
  if (SimulatedStorage::find(storage) == nullptr) {
    storage = SimulatedStorage::make(static_cast<int64_t>(storage.nbytes()), device);
  }
  // A view in inference mode is an inference tensor only if its base is.
  std::optional<c10::InferenceMode> like_source;
  if (c10::InferenceMode::is_enabled() && !meta.is_inference()) like_source.emplace(false);
  auto result = c10::make_intrusive<SimulatedTensor>(
      std::move(storage), keys_of(source->dtype(), device) | (source->key_set() & kLazyBits),
      source->dtype(), device);
  result->set_sizes_and_strides(source->sizes(), source->strides(), source->storage_offset());
  if (source->is_wrapped_number()) result->set_wrapped_number(true);
  return at::Tensor(std::move(result));
}

}  // namespace tidegauge::simulation
