// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/cpu_deleter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <mutex>

namespace tidegauge {

constinit CpuDeleter* CpuDeleter::instance_ = nullptr;
constinit c10::DeleterFnPtr CpuDeleter::fast_free_ = &CpuDeleter::free_memory;
constinit c10::DeleterFnPtr CpuDeleter::usual_replacement_ = &CpuDeleter::free_memory;

CpuDeleter::CpuDeleter(SpinLock& lock, MemoryTable& memory, EndHandler& handler)
    : lock_(lock),
      memory_(memory),
      handler_(handler),
      usual_deleter_(c10::GetDefaultCPUAllocator()->raw_deleter()) {
  instance_ = this;
}

bool CpuDeleter::is_cpu_deleter(c10::DeleterFnPtr deleter) const {
  if (deleter == nullptr) return false;
  return deleter == usual_deleter_ || deleter == wrapped_deleter_ ||
         deleter == c10::GetAllocator(c10::kCPU)->raw_deleter();
}

bool CpuDeleter::is_fresh(const c10::DataPtr& data) const {
  const c10::DeleterFnPtr deleter = data.get_deleter();
  return !is_ours(deleter) && data.get() == data.get_context() && is_cpu_deleter(deleter);
}

RegisteredStorage* CpuDeleter::watch(c10::StorageImpl& storage, const RegisteredStorage& record) {
  c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  RegisteredStorage* place = memory_.find(data.get());
  c10::DeleterFnPtr deleter = data.get_deleter();
  if (place != nullptr) {
    // The allocation of this memory was reported, so it already has our deleter.
    if (place->storage != nullptr || place->deleter == nullptr) return nullptr;
    deleter = place->deleter;
  } else {
    if (data.get() == nullptr || !is_fresh(data) || !replace_deleter(data)) return nullptr;
    place = memory_.insert(data.get()).first;
  }
  *place = record;
  place->deleter = deleter;
  place->data = data.get();
  return place;
}

c10::DeleterFnPtr CpuDeleter::end(RegisteredStorage* found) {
  // Memory that got our deleter has a record. If there is none, raw_deallocate is freeing memory
  // that was allocated before the channel opened.
  if (found == nullptr) return wrapped_deleter_;
  const RegisteredStorage ended = *found;
  memory_.erase(found);
  handler_.memory_ended(ended);
  return ended.deleter;
}

void CpuDeleter::free_memory(void* data) {
  CpuDeleter& self = *instance_;
  c10::DeleterFnPtr deleter = nullptr;
  {
    const std::lock_guard lock(self.lock_);
    deleter = self.end(self.memory_.find(data));
  }
  if (deleter != nullptr) deleter(data);
}

}  // namespace tidegauge
