// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/own_context.h"

#include <memory>
#include <mutex>

namespace tidegauge {

OwnContext::Context* OwnContext::context_of(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  return is_on(data) ? static_cast<Context*>(data.get_context()) : nullptr;
}

RegisteredStorage* OwnContext::find(c10::StorageImpl& storage) {
  Context* context = context_of(storage);
  return context != nullptr ? &context->record : nullptr;
}

RegisteredStorage* OwnContext::watch_fake(c10::StorageImpl& storage,
                                          const RegisteredStorage& record, const void* fake_mode) {
  if (storage.device_type() != c10::kMeta) return nullptr;
  if (storage._mutable_data_ptr_no_checks().get_context() != nullptr) return nullptr;
  auto* context = new Context{*this, record, fake_mode};
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, context, &free_context, storage.device()));
  return &context->record;
}

RegisteredStorage OwnContext::release(c10::StorageImpl& storage) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  const std::unique_ptr<Context> context(static_cast<Context*>(data.release_context()));
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  return context->record;
}

const void* OwnContext::fake_mode(c10::StorageImpl& storage) {
  const Context* context = context_of(storage);
  return context != nullptr ? context->fake_mode : nullptr;
}

void OwnContext::free_context(void* pointer) {
  const std::unique_ptr<Context> context(static_cast<Context*>(pointer));
  const std::lock_guard lock(context->owner.lock_);
  context->owner.handler_.storage_ended(context->record);
}

}  // namespace tidegauge
