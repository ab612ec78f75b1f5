// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/tensor_storages.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/hooks/fake_hook.h"
#include "capture/storages/storage_capture.h"

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

bool is_fake_tensor(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.key_set().has(c10::DispatchKey::Python)) return false;
  if (!impl.has_storage()) return true;  // sparse; a wrapper has a storage, if an empty one
  if (impl.unsafe_storage().device_type() != c10::kMeta) return false;
  // One that says that it is elsewhere is fake; of those on meta only Python knows.
  return !impl.key_set().has_backend(c10::BackendComponent::MetaBit) ||
         fake_hook::mode_of(tensor) != nullptr;
}

void claim_fake(const at::Tensor& tensor, const void* fake_mode) {
  if (!tensor.defined() || !is_fake_tensor(tensor)) return;
  StorageCapture& capture = StorageCapture::get();
  if (tensor.unsafeGetTensorImpl()->has_storage()) {
    capture.claim_meta(tensor, tensor, fake_mode);
  } else {
    visit_sparse_parts(
        tensor, [&](const at::Tensor& part) { capture.claim_meta(part, tensor, fake_mode); });
  }
}

void claim_fake(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Python)) return;
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && StorageCapture::is_claimed(storage->_mutable_data_ptr_no_checks())) {
    return;  // as nearly always
  }
  if (is_fake_tensor(tensor)) claim_fake(tensor, fake_hook::mode_of(tensor));
}

}  // namespace tidegauge
