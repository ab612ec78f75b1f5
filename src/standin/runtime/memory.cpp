// SPDX-License-Identifier: BSD-3-Clause
// Memory of the CUDA runtime: allocations, copies, pools.
#include <cstring>

#include "standin/runtime/cuda_types.h"
#include "standin/state/device_memory.h"
#include "standin/state/settings.h"
#include "standin/state/values.h"

namespace tidegauge::standin {
namespace {

int allocate(void** out, size_t size_bytes) {
  *out = nullptr;
  if (size_bytes == 0) return kSuccess;
  *out = DeviceMemory::instance().allocate(size_bytes, current_device());
  return *out == nullptr ? fail(kOutOfMemory) : kSuccess;
}

int release(void* memory) {
  if (memory == nullptr || DeviceMemory::instance().release(memory)) return kSuccess;
  return fail(kInvalidValue);
}

int copy(void* to, const void* from, size_t size_bytes, int kind) {
  if (size_bytes == 0) return kSuccess;
  if (to == nullptr || from == nullptr) return fail(kInvalidValue);
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice ||
                         (kind == kAnyToAny && DeviceMemory::instance().is_on_device(to));
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice ||
                           (kind == kAnyToAny && DeviceMemory::instance().is_on_device(from));
  if (to_device && from_device) {
    values::copy_on_device(to, from, size_bytes);
  } else if (to_device) {
    values::copy_to_device(to, from, size_bytes);
  } else if (from_device) {
    values::copy_to_host(to, from, size_bytes);
  } else {
    std::memmove(to, from, size_bytes);
  }
  return kSuccess;
}

int set(void* to, int byte, size_t size_bytes) {
  if (size_bytes > 0 && to == nullptr) return fail(kInvalidValue);
  if (DeviceMemory::instance().is_on_device(to)) {
    values::fill(to, byte, size_bytes);
  } else if (size_bytes > 0) {
    std::memset(to, byte, size_bytes);
  }
  return kSuccess;
}

}  // namespace
}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

int cudaMalloc(void** out, size_t size_bytes) { return allocate(out, size_bytes); }
int cudaMallocManaged(void** out, size_t size_bytes, unsigned) { return allocate(out, size_bytes); }
int cudaMallocAsync(void** out, size_t size_bytes, void*) { return allocate(out, size_bytes); }
int cudaFree(void* memory) { return release(memory); }
int cudaFreeAsync(void* memory, void*) { return release(memory); }
int cudaHostAlloc(void** out, size_t size_bytes, unsigned) {
  *out = DeviceMemory::instance().allocate_pinned(size_bytes);
  return *out == nullptr ? fail(kOutOfMemory) : kSuccess;
}
int cudaMallocHost(void** out, size_t size_bytes) { return cudaHostAlloc(out, size_bytes, 0); }
int cudaFreeHost(void* memory) { return release(memory); }
int cudaHostGetDevicePointer(void** out, void* memory, unsigned) {
  *out = memory;
  return kSuccess;
}
int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = DeviceMemory::instance().free_bytes(current_device());
  *total_bytes = settings().memory_bytes;
  return kSuccess;
}
int cudaPointerGetAttributes(PointerAttributes* out, const void* address) {
  const auto range = DeviceMemory::instance().find(address);
  *out = {0, current_device(), nullptr, nullptr};
  if (!range) return kSuccess;
  auto* pointer = const_cast<void*>(address);
  const bool is_host = range->device == DeviceMemory::kHost;
  *out = {is_host ? 1 : 2, is_host ? current_device() : range->device, pointer,
          is_host ? pointer : nullptr};
  return kSuccess;
}

int cudaMemcpy(void* to, const void* from, size_t size_bytes, int kind) {
  return copy(to, from, size_bytes, kind);
}
int cudaMemcpyAsync(void* to, const void* from, size_t size_bytes, int kind, void*) {
  return copy(to, from, size_bytes, kind);
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size_bytes, void*) {
  return copy(to, from, size_bytes, kDeviceToDevice);
}
int cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, int kind, void*) {
  for (size_t row = 0; row < height; ++row) {
    const int error = copy(static_cast<char*>(to) + row * to_pitch,
                           static_cast<const char*>(from) + row * from_pitch, width, kind);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}
int cudaMemset(void* to, int byte, size_t size_bytes) { return set(to, byte, size_bytes); }
int cudaMemsetAsync(void* to, int byte, size_t size_bytes, void*) {
  return set(to, byte, size_bytes);
}

int cudaDeviceGetDefaultMemPool(void** pool, int device) {
  *pool = reinterpret_cast<void*>(uintptr_t{0x1000} + device);
  return kSuccess;
}
int cudaMemPoolGetAttribute(void*, int, uint64_t* value) {
  *value = 0;
  return kSuccess;
}
int cudaDeviceGetGraphMemAttribute(int, int, uint64_t* value) {
  *value = 0;
  return kSuccess;
}
int cudaIpcGetMemHandle(void*, void*) { return fail(kNotSupported); }
int cudaIpcOpenMemHandle(void**, ...) { return fail(kNotSupported); }
int cudaIpcGetEventHandle(void*, void*) { return fail(kNotSupported); }
int cudaIpcOpenEventHandle(void**, ...) { return fail(kNotSupported); }

}  // extern "C"
