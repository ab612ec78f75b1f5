// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

namespace tidegauge {

/// Calls `visit` for each storage behind a tensor: one, or those of the parts of a sparse tensor;
/// none for wrapper subclasses, fake tensors that nobody claimed, and what a fake kernel makes on
/// meta.
void visit_storages(const at::Tensor& tensor, c10::function_ref<void(c10::StorageImpl*)> visit);

/// Whether it is a FakeTensor, of Python or simulated by us: its storage is on meta, and it says that
/// it is elsewhere.
bool is_fake_tensor(const c10::TensorImpl& tensor);
/// From now on the storage of such a tensor counts, on the device that the tensor claims to be on.
/// Nothing for other tensors. Without the lock; may take the GIL.
void claim_fake(const at::Tensor& tensor);

}  // namespace tidegauge
