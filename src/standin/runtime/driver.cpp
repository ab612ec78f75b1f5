// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver: what expandable segments, Triton and NVRTC need of it.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "standin/runtime/cuda_types.h"
#include "standin/state/device_memory.h"
#include "standin/state/settings.h"
#include "standin/state/values.h"

namespace tidegauge::standin {
namespace {

/// Memory without addresses, with the number of its handles.
struct Physical {
  size_t size_bytes;
  int device;
  int references;
};
std::mutex physical_mutex;

uintptr_t name_context(int device) { return 0x2000 + device; }

int refuse() { return kNotSupported; }

}  // namespace
}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = STANDIN_CUDA_VERSION;
  return kSuccess;
}
const char* cudaGetErrorString(int error);
int cuGetErrorString(int error, const char** text) {
  *text = cudaGetErrorString(error);
  return kSuccess;
}
int cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }

// Devices and contexts
int cuDeviceGet(int* device, int index) {
  if (!is_device(index)) return kInvalidDevice;
  *device = index;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = visible_devices();
  return kSuccess;
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, size, "%s", settings().name.c_str());
  return kSuccess;
}
int cuDeviceTotalMem_v2(size_t* size_bytes, int) {
  *size_bytes = settings().memory_bytes;
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = find_attribute(attribute);
  return kSuccess;
}
int cuDeviceGetUuid_v2(char* uuid, int device) {
  std::fill_n(uuid, 16, static_cast<char>(device + 1));
  return kSuccess;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = DeviceMemory::instance().has_context(device) ? 1 : 0;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(uintptr_t* context, int device) {
  *context = name_context(device);
  return kSuccess;
}
int cuCtxGetCurrent(uintptr_t* context) {
  *context = name_context(current_device());
  return kSuccess;
}
int cuStreamGetCtx(void*, uintptr_t* context) { return cuCtxGetCurrent(context); }
int cuCtxPopCurrent_v2(uintptr_t* context) { return cuCtxGetCurrent(context); }
int cuCtxPushCurrent_v2(uintptr_t) { return kSuccess; }
int cuCtxGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}
int cuLogsRegisterCallback(void*, void*, void** handle) {
  *handle = nullptr;
  return kSuccess;
}
int cuLogsUnregisterCallback(void*) { return kSuccess; }

// Memory
int cuMemGetAllocationGranularity(size_t* size_bytes, const AllocationProperties*, int) {
  *size_bytes = DeviceMemory::kPage;
  return kSuccess;
}
int cuMemAddressReserve(void** out, size_t size_bytes, size_t, uintptr_t, uint64_t) {
  *out = DeviceMemory::instance().reserve(size_bytes, current_device());
  return *out == nullptr ? kOutOfMemory : kSuccess;
}
int cuMemAddressFree(void* begin, size_t) {
  return DeviceMemory::instance().release(begin) ? kSuccess : kInvalidValue;
}
int cuMemCreate(void** handle, size_t size_bytes, const AllocationProperties* wanted, uint64_t) {
  const int device = wanted->location_type == 1 ? wanted->location_id : current_device();
  if (!is_device(device)) return kInvalidDevice;
  if (!DeviceMemory::instance().take(size_bytes, device)) return kOutOfMemory;
  *handle = new Physical{size_bytes, device, 1};
  return kSuccess;
}
int cuMemRelease(void* handle) {
  auto* physical = static_cast<Physical*>(handle);
  const std::lock_guard lock(physical_mutex);
  if (--physical->references > 0) return kSuccess;
  DeviceMemory::instance().give_back(physical->size_bytes, physical->device);
  delete physical;
  return kSuccess;
}
int cuMemMap(void*, size_t, size_t, void* handle, uint64_t) {
  return handle == nullptr ? kInvalidValue : kSuccess;
}
int cuMemUnmap(void* begin, size_t size_bytes) {
  values::forget(begin, size_bytes);
  madvise(begin, size_bytes, MADV_DONTNEED);
  return kSuccess;
}
int cuMemSetAccess(void*, size_t, const void*, size_t) { return kSuccess; }
int cuMemGetAddressRange_v2(uintptr_t* begin, size_t* size_bytes, const void* address) {
  const auto range = DeviceMemory::instance().find(address);
  if (!range) return kInvalidValue;
  if (begin != nullptr) *begin = range->begin;
  if (size_bytes != nullptr) *size_bytes = range->size_bytes;
  return kSuccess;
}
int cuMemAlloc_v2(void** out, size_t size_bytes) {
  *out = DeviceMemory::instance().allocate(size_bytes, current_device());
  return *out == nullptr ? kOutOfMemory : kSuccess;
}
int cuMemFree_v2(void* begin) {
  return DeviceMemory::instance().release(begin) ? kSuccess : kInvalidValue;
}
int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t size_bytes, void*) {
  values::copy_to_host(to, from, size_bytes);
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t size_bytes, void*) {
  values::copy_to_device(to, from, size_bytes);
  return kSuccess;
}
int cuMemsetD32Async(void* to, unsigned value, size_t count, void*) {
  if (value == 0) values::fill(to, 0, count * sizeof value);
  return kSuccess;
}
int cuPointerGetAttribute(void* out, int attribute, const void* address) {
  constexpr int kContext = 1, kMemoryType = 2, kDevicePointer = 3, kBufferId = 7, kOrdinal = 9;
  const auto range = DeviceMemory::instance().find(address);
  if (!range) return kInvalidValue;
  const int device = std::max(range->device, 0);
  switch (attribute) {
    case kContext:
      *static_cast<uintptr_t*>(out) = name_context(device);
      return kSuccess;
    case kMemoryType:
      *static_cast<unsigned*>(out) = range->device == DeviceMemory::kHost ? 1 : 2;
      return kSuccess;
    case kDevicePointer:
      *static_cast<const void**>(out) = address;
      return kSuccess;
    case kBufferId:
      *static_cast<uint64_t*>(out) = range->begin;
      return kSuccess;
    case kOrdinal:
      *static_cast<int*>(out) = device;
      return kSuccess;
    default:
      return kNotSupported;
  }
}

// Modules and their kernels: names only
int cuModuleLoadData(void** module, const void*) {
  *module = new char;
  return kSuccess;
}
int cuModuleLoadDataEx(void** module, const void* image, unsigned, void*, void*) {
  return cuModuleLoadData(module, image);
}
int cuModuleLoad(void** module, const char*) { return cuModuleLoadData(module, nullptr); }
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = strdup(name);
  return kSuccess;
}
int cuModuleGetGlobal_v2(void**, size_t*, void*, const char*) { return kNotSupported; }
int cuFuncGetAttribute(int* value, int attribute, void*) {
  constexpr int kThreads = 0, kRegisters = 4;
  *value = attribute == kThreads ? find_attribute(1) : attribute == kRegisters ? 32 : 0;
  return kSuccess;
}
int cuKernelGetAttribute(int* value, int attribute, void* kernel, int) {
  return cuFuncGetAttribute(value, attribute, kernel);
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int block_size, size_t) {
  *blocks = std::max(1, find_attribute(39) / std::max(block_size, 1));
  return kSuccess;
}
int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) {
  *clusters = 1;
  return kSuccess;
}
int cuLinkCreate_v2(unsigned, void*, void*, void** state) {
  *state = new char;
  return kSuccess;
}
int cuLinkComplete(void*, void** cubin, size_t* size_bytes) {
  static char nothing[64];
  *cubin = nothing;
  *size_bytes = sizeof nothing;
  return kSuccess;
}
// Triton asks for these by name, so no shared object of torch mentions them.
int cuCtxSetLimit(int, size_t) { return kSuccess; }
int cuCtxGetLimit(size_t* limit, int) {
  *limit = 0;
  return kSuccess;
}
int cuCtxSetCurrent(uintptr_t) { return kSuccess; }
int cudaStreamIsCapturing(void* stream, int* status);
int cuStreamIsCapturing(void* stream, int* status) { return cudaStreamIsCapturing(stream, status); }
int cuPointerGetAttributes(unsigned count, const int* attributes, void** out, const void* address) {
  for (unsigned index = 0; index < count; ++index) {
    const int error = cuPointerGetAttribute(out[index], attributes[index], address);
    if (error != kSuccess) return error;
  }
  return kSuccess;
}
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
int cuLaunchKernelEx(const void*, void*, void**, void**) { return kSuccess; }
int cuTensorMapEncodeTiled(void*, ...) { return kSuccess; }
int cuTensorMapEncodeIm2col(void*, ...) { return kSuccess; }
int cuModuleUnload(void*) { return kSuccess; }
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }

/// Finds a function of this library, in its newest form; others refuse to work.
int tidegauge_standin_find_driver(const char* name, void** function) {
  *function = nullptr;
  for (const char* suffix : {"_v2", ""}) {
    void* found = dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str());
    Dl_info of_found{}, of_us{};
    if (found != nullptr && dladdr(found, &of_found) != 0 &&
        dladdr(reinterpret_cast<void*>(&cuInit), &of_us) != 0 &&
        of_found.dli_fbase == of_us.dli_fbase) {
      *function = found;
      return kSuccess;
    }
  }
  *function = reinterpret_cast<void*>(&refuse);
  return kSuccess;
}
int cuGetProcAddress_v2(const char* name, void** function, int, uint64_t, int* result) {
  if (result != nullptr) *result = 0;
  return tidegauge_standin_find_driver(name, function);
}

}  // extern "C"
