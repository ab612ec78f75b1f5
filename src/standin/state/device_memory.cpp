// SPDX-License-Identifier: BSD-3-Clause
#include "standin/state/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "standin/state/settings.h"
#include "standin/state/values.h"

namespace tidegauge::standin {
namespace {

constexpr size_t kSmall = size_t{1} << 20;
constexpr size_t kSmallUnit = 512;
constexpr size_t kHostPage = 4096;

size_t count_bytes(size_t size_bytes) {
  const size_t unit = size_bytes >= kSmall ? DeviceMemory::kPage : kSmallUnit;
  return (size_bytes + unit - 1) / unit * unit;
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* memory = new DeviceMemory;  // never destroyed: torch frees at exit
  return *memory;
}

DeviceMemory::DeviceMemory() : devices_(std::max(settings().devices, 1)) {}

void DeviceMemory::make_context_locked(int device) {
  if (devices_[device].has_context) return;
  devices_[device].has_context = true;
  devices_[device].used_bytes += settings().context_bytes;
}

void DeviceMemory::make_context(int device) {
  const std::lock_guard lock(mutex_);
  make_context_locked(device);
}

bool DeviceMemory::has_context(int device) const {
  const std::lock_guard lock(mutex_);
  return devices_[device].has_context;
}

bool DeviceMemory::take_locked(size_t size_bytes, int device) {
  make_context_locked(device);
  size_t& used_bytes = devices_[device].used_bytes;
  const size_t total_bytes = settings().memory_bytes;
  if (used_bytes > total_bytes || size_bytes > total_bytes - used_bytes) return false;
  used_bytes += size_bytes;
  return true;
}

bool DeviceMemory::take(size_t size_bytes, int device) {
  const std::lock_guard lock(mutex_);
  return take_locked(size_bytes, device);
}

void DeviceMemory::give_back(size_t size_bytes, int device) {
  const std::lock_guard lock(mutex_);
  devices_[device].used_bytes -= size_bytes;
}

void* DeviceMemory::allocate(size_t size_bytes, int device) {
  const std::lock_guard lock(mutex_);
  const size_t counted_bytes = count_bytes(size_bytes);
  if (counted_bytes < size_bytes || !take_locked(counted_bytes, device)) return nullptr;
  void* begin = addresses_.take(size_bytes, size_bytes >= kSmall ? kPage : kHostPage);
  if (begin == nullptr) {
    devices_[device].used_bytes -= counted_bytes;
    return nullptr;
  }
  ranges_[reinterpret_cast<uintptr_t>(begin)] = {size_bytes, counted_bytes, device};
  return begin;
}

void* DeviceMemory::allocate_pinned(size_t size_bytes) {
  const size_t size = std::max(size_bytes, size_t{1});
  void* begin = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  const std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<uintptr_t>(begin)] = {size, 0, kHost};
  return begin;
}

void* DeviceMemory::reserve(size_t size_bytes, int device) {
  const std::lock_guard lock(mutex_);
  void* begin = addresses_.take(size_bytes, kPage);
  if (begin != nullptr) ranges_[reinterpret_cast<uintptr_t>(begin)] = {size_bytes, 0, device};
  return begin;
}

bool DeviceMemory::release(void* begin) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(begin));
  if (found == ranges_.end()) return false;
  const Entry entry = found->second;
  ranges_.erase(found);
  if (entry.device == kHost) {
    munmap(begin, entry.size_bytes);
    return true;
  }
  devices_[entry.device].used_bytes -= entry.counted_bytes;
  values::forget(begin, entry.size_bytes);
  addresses_.give_back(begin);
  return true;
}

std::map<uintptr_t, DeviceMemory::Entry>::const_iterator DeviceMemory::find_locked(
    const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  auto next = ranges_.upper_bound(wanted);
  if (next == ranges_.begin()) return ranges_.end();
  --next;
  return wanted - next->first < next->second.size_bytes ? next : ranges_.end();
}

std::optional<DeviceMemory::Range> DeviceMemory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(address);
  if (found == ranges_.end()) return std::nullopt;
  return Range{found->first, found->second.size_bytes, found->second.device};
}

bool DeviceMemory::is_on_device(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = find_locked(address);
  return found != ranges_.end() && found->second.device != kHost;
}

size_t DeviceMemory::free_bytes(int device) {
  const std::lock_guard lock(mutex_);
  make_context_locked(device);
  const size_t used_bytes = devices_[device].used_bytes;
  const size_t total_bytes = settings().memory_bytes;
  return used_bytes < total_bytes ? total_bytes - used_bytes : 0;
}

}  // namespace tidegauge::standin
