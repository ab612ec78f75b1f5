// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/tensor_storages.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/compat/fake_mode.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge {
namespace {

/// True if a storage without data is only a stand-in. Wrapper subclasses and fake tensors have the
/// key Python; a fake kernel runs while the thread includes the meta backend.
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
  if (data.get() == nullptr && !OwnContext::is_on(data) && is_stand_in(*impl, *storage)) {
    return;
  }
  visit(storage);
}

bool is_fake_tensor(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.key_set().has(c10::DispatchKey::Python)) return false;
  if (!impl.has_storage()) return true;  // sparse; a wrapper has a storage, though an empty one
  if (impl.unsafe_storage().device_type() != c10::kMeta) return false;
  // A tensor whose device differs from its storage's is fake. If both are meta, Python must decide.
  return !impl.key_set().has_backend(c10::BackendComponent::MetaBit) ||
         fake_mode::mode_of(tensor) != nullptr;
}

void register_fake(const at::Tensor& tensor, const void* fake_mode) {
  if (!tensor.defined() || !is_fake_tensor(tensor)) return;
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && OwnContext::is_on(storage->_mutable_data_ptr_no_checks())) return;
  // `device()` of a fake tensor calls into Python. The CPU has no index, so no call is needed.
  const bool is_cpu = tensor.key_set().has_backend(c10::BackendComponent::CPUBit);
  const c10::Device device = is_cpu ? c10::Device(c10::kCPU) : tensor.device();
  const auto register_part = [&](const at::Tensor& part) {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().register_fake(storage_of(part), device, fake_mode);
  };
  if (tensor.unsafeGetTensorImpl()->has_storage()) {
    register_part(tensor);
  } else {
    visit_sparse_parts(tensor, register_part);
  }
}

void register_fake(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(c10::DispatchKey::Python)) return;
  c10::StorageImpl* storage = storage_of(tensor);
  if (storage != nullptr && OwnContext::is_on(storage->_mutable_data_ptr_no_checks())) {
    return;  // already registered: the common case
  }
  if (is_fake_tensor(tensor)) register_fake(tensor, fake_mode::mode_of(tensor));
}

}  // namespace tidegauge
