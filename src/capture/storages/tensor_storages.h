// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

namespace tidegauge {

/// The storage of a tensor; null for an undefined or a sparse one.
inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

/// The part of `visit_storages` for tensors whose storage has no memory, or that have no storage.
void visit_uncommon_storages(const at::Tensor& tensor,
                             c10::function_ref<void(c10::StorageImpl*)> visit);

/// Calls `visit` for each storage behind a tensor. A sparse tensor has several. Wrapper subclasses,
/// fake tensors that are not registered, and meta tensors of fake kernels have none.
template <typename Visit>
void visit_storages(const at::Tensor& tensor, Visit&& visit) {
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && storage->_mutable_data_ptr_no_checks().get() != nullptr) {
    visit(storage);
  } else {
    visit_uncommon_storages(tensor, visit);
  }
}

/// True for a FakeTensor. May take the GIL.
bool is_fake_tensor(const at::Tensor& tensor);
/// Registers the storages of a FakeTensor. They count on the tensor's device, for listeners of
/// `fake_mode`. No effect for other tensors. The lock must not be held; may take the GIL.
void register_fake(const at::Tensor& tensor, const void* fake_mode);
/// The same with the tensor's own mode, which Python knows.
void register_fake(const at::Tensor& tensor);

}  // namespace tidegauge
