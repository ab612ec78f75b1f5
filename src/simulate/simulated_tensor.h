// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <typeinfo>

#include "capture/storages/claimed_storage.h"
#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// A storage that has a size and no memory.
struct TIDEGAUGE_API SimulatedStorage final : ClaimedStorage {
  static c10::Storage make(int64_t size_bytes, c10::Device device);
  /// Null for a storage of another kind.
  static SimulatedStorage* find(const c10::Storage& storage);
  /// Of all that are left: nothing is known of their contents, and to ask for their data throws.
  static void end_all();

  c10::Storage values;     ///< real memory of the same size, where its contents are known
  bool is_pinned = false;  ///< as told by torch's is_pinned

  SimulatedStorage(int64_t size_bytes, c10::Device device);
  ~SimulatedStorage() override;
  void release_resources() override;

 private:
  // All that are alive, as a list.
  SimulatedStorage* next_ = nullptr;
  SimulatedStorage* previous_ = nullptr;
};

/// Bits of a tensor's own state, which a copy of its meta data has to carry.
inline constexpr c10::DispatchKeySet kLazyBits{
    c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor};

/// A tensor on the device that it claims, without memory.
///
/// Its storage is on meta, so that torch's meta kernels take it; it has the key Fake, so that every
/// op on it comes to us first, in whichever thread; and the keys of the claimed device, so that
/// autograd, autocast and choices of kernels go as on that device. While Fake is excluded it says
/// meta, which is what meta kernels want to see.
class TIDEGAUGE_API SimulatedTensor final : public c10::TensorImpl {
 public:
  SimulatedTensor(c10::Storage storage, c10::DispatchKeySet keys, caffe2::TypeMeta dtype,
                  c10::Device device);
  /// A view of `base`, of whatever shape: like it, also where this is an inference mode.
  SimulatedTensor(const SimulatedTensor& base, c10::DispatchKeySet lazy_bits,
                  caffe2::TypeMeta dtype);

  c10::Device claimed_device() const { return claimed_device_; }

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

  c10::Device claimed_device_;
};

/// The key alone does not tell: views that a meta kernel makes inherit it.
inline bool is_simulated(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->is_fake()) return false;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return typeid(impl) == typeid(SimulatedTensor);
}
inline const SimulatedTensor& as_simulated(const at::Tensor& tensor) {
  return *static_cast<const SimulatedTensor*>(tensor.unsafeGetTensorImpl());
}

/// What a tensor of these properties has besides the keys that its autograd adds.
c10::DispatchKeySet keys_of(caffe2::TypeMeta dtype, c10::Device device);

/// A meta tensor of the same shape: what a meta kernel has to know of a tensor.
at::Tensor to_meta(const at::Tensor& tensor);

/// The simulated tensor that stands for a meta tensor, as a meta kernel makes it; a storage that is
/// not simulated yet is replaced by one that is.
at::Tensor to_simulated(const at::Tensor& meta, c10::Device device);

}  // namespace tidegauge::simulation
