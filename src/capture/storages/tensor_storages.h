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

/// For what `visit_storages` does not see at once.
void visit_uncommon_storages(const at::Tensor& tensor,
                             c10::function_ref<void(c10::StorageImpl*)> visit);

/// Calls `visit` for each storage behind a tensor: one, or those of the parts of a sparse tensor;
/// none for wrapper subclasses, fake tensors that nobody claimed, and what a fake kernel makes on
/// meta.
template <typename Visit>
void visit_storages(const at::Tensor& tensor, Visit&& visit) {
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && storage->_mutable_data_ptr_no_checks().get() != nullptr) {
    visit(storage);
  } else {
    visit_uncommon_storages(tensor, visit);
  }
}

/// Whether it is a FakeTensor. May take the GIL.
bool is_fake_tensor(const at::Tensor& tensor);
/// From now on the storage of a FakeTensor counts, on the device that the tensor claims to be on,
/// for trackers of `fake_mode`. Nothing for other tensors. Without the lock; may take the GIL.
void claim_fake(const at::Tensor& tensor, const void* fake_mode);
/// Likewise, of the mode that Python says it has.
void claim_fake(const at::Tensor& tensor);

}  // namespace tidegauge
