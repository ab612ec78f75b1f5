// SPDX-License-Identifier: BSD-3-Clause
// NVML, by which torch counts devices and describes out-of-memory errors. Nobody links it, so all
// of it is here.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "standin/state/device_memory.h"
#include "standin/state/settings.h"

using namespace tidegauge::standin;

namespace {

constexpr int kNotSupported = 3;

struct Memory {
  uint64_t total_bytes, free_bytes, used_bytes;
};
void* to_handle(unsigned device) { return reinterpret_cast<void*>(uintptr_t{device} + 1); }
int to_device(void* handle) { return static_cast<int>(reinterpret_cast<uintptr_t>(handle)) - 1; }

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlInit() { return 0; }
int nvmlInitWithFlags(unsigned) { return 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int error) {
  return error == 0 ? "Success" : "not supported by the stand-in for CUDA";
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = STANDIN_CUDA_VERSION;
  return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::snprintf(text, size, "580.00");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(settings().devices);
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = to_handle(index);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* text, void** handle) {
  constexpr int kHexadecimal = 16;
  const char* colon = std::strchr(text, ':');  // after the domain
  if (colon == nullptr) return kNotSupported;
  *handle = to_handle(static_cast<unsigned>(std::strtoul(colon + 1, nullptr, kHexadecimal)) - 1);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char*, void** handle) {
  *handle = to_handle(0);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "%s", settings().name.c_str());
  return 0;
}
int nvmlDeviceGetUUID(void* handle, char* text, unsigned size) {
  const unsigned byte = to_device(handle) + 1;
  std::snprintf(text, size, "GPU-%08x-0000-0000-0000-%012x", byte, byte);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* out) {
  const uint64_t total_bytes = settings().memory_bytes;
  const uint64_t free_bytes = DeviceMemory::instance().free_bytes(to_device(handle));
  *out = {total_bytes, free_bytes, total_bytes - free_bytes};
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
int nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, void*) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, void*) { return kNotSupported; }
/// No fabric: everything after the version, whose lowest bits are the size, is 0.
int nvmlDeviceGetGpuFabricInfoV(void*, unsigned* out) {
  constexpr unsigned kSizeMask = 0xffffff;
  std::memset(out + 1, 0, (*out & kSizeMask) - sizeof *out);
  return 0;
}

}  // extern "C"
