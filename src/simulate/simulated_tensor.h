// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <optional>
#include <typeinfo>

#include "capture/compat/dispatch_key.h"
#include "capture/storages/virtual_storage.h"
#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// A storage with a size but no memory.
struct TIDEGAUGE_API SimulatedStorage final : VirtualStorage {
  static c10::Storage make(int64_t size_bytes, c10::Device device);
  /// Null for a storage of another kind.
  static SimulatedStorage* find(const c10::Storage& storage);
  /// Drops the known values of all live storages; from now on reading their data throws.
  static void end_all();

  c10::Storage values;  ///< real memory with the contents, where they are known
  /// The value of all elements, if they are equal; then there are no `values`.
  std::optional<c10::Scalar> constant;
  c10::ScalarType constant_dtype = c10::ScalarType::Undefined;
  bool is_pinned = false;  ///< the answer to torch's is_pinned

  SimulatedStorage(int64_t size_bytes, c10::Device device);
  ~SimulatedStorage() override;
  void release_resources() override;

 private:
  // The list of all live storages.
  SimulatedStorage* next_ = nullptr;
  SimulatedStorage* previous_ = nullptr;
};

/// Dispatch keys that are part of a tensor's state; a copy of its metadata must carry them.
inline constexpr c10::DispatchKeySet kLazyBits{
    c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor};

/// A tensor on the device that it claims, without memory.
///
/// Its storage is on the meta device, so that torch's meta kernels accept it. It carries a dispatch
/// key of ours (compat/dispatch_key.h), so that every op on it reaches our handler, in any thread.
/// It has the keys of the claimed device, so that autograd, autocast and the choice of kernels work
/// as on that device. While our key is excluded, its device is meta, as meta kernels expect.
class TIDEGAUGE_API SimulatedTensor final : public c10::TensorImpl {
 public:
  SimulatedTensor(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                  c10::Device device);
  /// A view of `base`, of any shape. It is an inference tensor only if `base` is.
  SimulatedTensor(const SimulatedTensor& base, c10::DispatchKeySet lazy_bits,
                  caffe2::TypeMeta dtype);

  c10::Device counted_device() const { return counted_device_; }

  c10::Device device_custom() const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override;
  const char* tensorimpl_type_name() const override { return "SimulatedTensor"; }

 private:
  struct ForCopy {};
  SimulatedTensor(ForCopy, const SimulatedTensor& other);
  friend class c10::intrusive_ptr<SimulatedTensor>;

  template <typename Version>
  c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool allow_change) const;

  c10::Device counted_device_;
};

/// The key alone is not enough: views made by a meta kernel inherit it.
inline bool is_simulated(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.key_set().has(dispatch_key::kCarried)) return false;
  return typeid(impl) == typeid(SimulatedTensor);
}
inline const SimulatedTensor& as_simulated(const at::Tensor& tensor) {
  return *static_cast<const SimulatedTensor*>(tensor.unsafeGetTensorImpl());
}

/// The dispatch keys of such a tensor without those that autograd adds.
c10::DispatchKeySet keys_of(caffe2::TypeMeta dtype, c10::Device device);

/// A meta tensor of the same sizes, strides and dtype.
at::Tensor to_meta(const at::Tensor& tensor);

/// The simulated tensor for a meta tensor that a meta kernel returned. Replaces its storage by a
/// simulated one, unless it is simulated already.
at::Tensor to_simulated(const at::Tensor& meta, c10::Device device);

}  // namespace tidegauge::simulation
