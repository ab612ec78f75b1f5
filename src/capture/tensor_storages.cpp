// SPDX-License-Identifier: BSD-3-Clause
#include "capture/tensor_storages.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/storage_capture.h"

namespace tidegauge {
namespace {

/// Given a storage without data: whether it only stands for one. Wrapper subclasses and fake
/// tensors have the key Python; a fake kernel runs with meta switched on for the thread.
bool is_stand_in(const c10::TensorImpl& tensor, const c10::StorageImpl& storage) {
  return tensor.key_set().has(c10::DispatchKey::Python) ||
         (storage.device_type() == c10::kMeta &&
          c10::impl::tls_local_dispatch_key_set().included_.has_backend(
              c10::BackendComponent::MetaBit));
}

template <typename Visit>
void visit_sparse_parts(const at::Tensor& tensor, Visit visit) {
  if (tensor.layout() == c10::kSparse) {
    const auto* sparse = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    visit(sparse->indices());
    visit(sparse->values());
  } else if (tensor.layout() == c10::kSparseCsr || tensor.layout() == c10::kSparseCsc ||
             tensor.layout() == c10::kSparseBsr || tensor.layout() == c10::kSparseBsc) {
    const auto* compressed = static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
    visit(compressed->compressed_indices());
    visit(compressed->plain_indices());
    visit(compressed->values());
  }
}

}  // namespace

void visit_uncommon_storages(const at::Tensor& tensor,
                             c10::function_ref<void(c10::StorageImpl*)> visit) {
  if (!tensor.defined()) return;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!impl->has_storage()) {
    visit_sparse_parts(tensor, [&](const at::Tensor& part) { visit_storages(part, visit); });
    return;
  }
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr && !StorageCapture::is_claimed(data) && is_stand_in(*impl, *storage)) {
    return;
  }
  visit(storage);
}

bool is_fake_tensor(const c10::TensorImpl& tensor) {
  if (!tensor.key_set().has(c10::DispatchKey::Python)) return false;
  if (!tensor.has_storage()) return true;  // sparse; a wrapper has a storage, if an empty one
  return tensor.unsafe_storage().device_type() == c10::kMeta &&
         !tensor.key_set().has_backend(c10::BackendComponent::MetaBit);
}

void claim_fake(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_fake_tensor(*tensor.unsafeGetTensorImpl())) return;
  if (tensor.unsafeGetTensorImpl()->has_storage()) {
    StorageCapture::get().claim_meta(tensor, tensor);
  } else {
    visit_sparse_parts(
        tensor, [&](const at::Tensor& part) { StorageCapture::get().claim_meta(part, tensor); });
  }
}

}  // namespace tidegauge
