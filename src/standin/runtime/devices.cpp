// SPDX-License-Identifier: BSD-3-Clause
// Devices and errors of the CUDA runtime.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>

#include "standin/runtime/cuda_types.h"
#include "standin/state/device_memory.h"
#include "standin/state/settings.h"

namespace tidegauge::standin {
namespace {

thread_local int device_of_thread = 0;
thread_local int last_error = kSuccess;

constexpr int kThreadsPerBlock = 1024;
constexpr int kRegisters = 64 << 10;
constexpr int kSharedPerBlock = 48 << 10;
constexpr int kReservedShared = 1 << 10;
constexpr int kL2 = 50 << 20;

/// Threads of a multiprocessor, by compute capability.
int threads_per_multiprocessor() {
  const auto& [major, minor] = std::pair(settings().major, settings().minor);
  if (major == 7 && minor == 5) return 1024;
  return major == 12 || (major == 8 && minor >= 6) ? 1536 : 2048;
}

/// Shared memory of a multiprocessor, by compute capability (CUDA's programming guide).
int shared_bytes_per_multiprocessor() {
  const auto& [major, minor] = std::pair(settings().major, settings().minor);
  if (major >= 9) return 228 << 10;
  if (major == 8) return (minor == 0 ? 164 : 100) << 10;
  return (minor == 5 ? 64 : 96) << 10;
}
int shared_bytes_per_block_optin() {
  const int bytes = shared_bytes_per_multiprocessor();
  return settings().major >= 8 ? bytes - kReservedShared : bytes;
}

template <bool kIsCuda12>
void describe(DeviceProperties<kIsCuda12>& out, int device) {
  std::memset(static_cast<void*>(&out), 0, offsetof(DeviceProperties<kIsCuda12>, reserved));
  std::snprintf(out.name, sizeof out.name, "%s", settings().name.c_str());
  std::fill_n(out.uuid, sizeof out.uuid, static_cast<char>(device + 1));
  out.total_memory_bytes = settings().memory_bytes;
  out.shared_bytes_per_block = kSharedPerBlock;
  out.registers_per_block = out.registers_per_multiprocessor = kRegisters;
  out.warp_size = find_attribute(10);
  out.pitch = INT_MAX;
  out.threads_per_block = out.block_size[0] = out.block_size[1] = kThreadsPerBlock;
  out.block_size[2] = find_attribute(4);
  out.grid_size[0] = INT_MAX;
  out.grid_size[1] = out.grid_size[2] = USHRT_MAX;
  out.constant_bytes = find_attribute(9);
  out.major = settings().major;
  out.minor = settings().minor;
  out.texture_alignment = find_attribute(14);
  out.overlap[std::size(out.overlap) - 1] = settings().multiprocessors;
  out.can_map_host_memory = out.concurrent_kernels = out.ecc = out.unified_addressing = 1;
  out.pci_bus = device + 1;
  out.async_engines = find_attribute(40);
  out.l2_bytes = kL2;
  out.threads_per_multiprocessor = threads_per_multiprocessor();
  out.stream_priorities = out.global_l1 = out.local_l1 = out.managed_memory = 1;
  out.shared_bytes_per_multiprocessor = shared_bytes_per_multiprocessor();
  out.preemption = out.host_pointers = out.cooperative_launch[0] = 1;
  out.shared_bytes_per_block_optin = shared_bytes_per_block_optin();
  out.blocks_per_multiprocessor = find_attribute(106);
  out.reserved_shared_bytes_per_block = kReservedShared;
}

template <bool kIsCuda12>
int read_properties(DeviceProperties<kIsCuda12>* out, int device) {
  if (!is_device(device)) return fail(kInvalidDevice);
  describe(*out, device);
  return kSuccess;
}

}  // namespace

int fail(Error error) { return last_error = error; }
int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }
bool is_device(int device) { return device >= 0 && device < visible_devices(); }

int find_attribute(int attribute) {
  switch (attribute) {
    case 1:  // threads per block, and its width and height
    case 2:
    case 3:
      return kThreadsPerBlock;
    case 4:
      return 64;
    case 5:  // width of a grid
    case 11:
      return INT_MAX;
    case 6:
    case 7:
      return USHRT_MAX;
    case 8:
      return kSharedPerBlock;
    case 9:  // constant memory
      return 64 << 10;
    case 10:  // warp
      return 32;
    case 12:
    case 82:
      return kRegisters;
    case 13:  // kHz
      return 1980000;
    case 14:  // alignment of textures
      return 512;
    case 16:
      return settings().multiprocessors;
    case 36:  // kHz of the memory
      return 2619000;
    case 37:  // width of its bus
      return 5120;
    case 38:
      return kL2;
    case 39:
      return threads_per_multiprocessor();
    case 40:  // copy engines
      return 3;
    case 75:
      return settings().major;
    case 76:
      return settings().minor;
    case 81:
      return shared_bytes_per_multiprocessor();
    case 97:
      return shared_bytes_per_block_optin();
    case 106:  // blocks per multiprocessor
      return settings().major == 8 && settings().minor > 0 ? 24 : 32;
    case 111:
      return kReservedShared;
    case 120:  // clusters
      return settings().major >= 9 ? 1 : 0;
    case 15:  // overlap
    case 19:  // maps host memory
    case 31:  // concurrent kernels
    case 32:  // error correction
    case 33:  // PCI bus
    case 41:  // unified addresses
    case 78:  // priorities of streams
    case 79:  // L1 caches
    case 80:
    case 83:  // managed memory
    case 89:
    case 90:  // preemption
    case 91:
    case 95:   // cooperative launch
    case 102:  // virtual memory
    case 103:  // handles as file descriptors
    case 110:
    case 115:  // pools
    case 116:
      return 1;
    default:
      return 0;
  }
}

}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

int cudaGetDeviceCount(int* count) {
  *count = visible_devices();
  return *count > 0 ? kSuccess : fail(kNoDevice);
}
int cudaGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}
int cudaSetDevice(int device) {
  if (!is_device(device)) return fail(kInvalidDevice);
  set_current_device(device);
  DeviceMemory::instance().make_context(device);
  return kSuccess;
}
int cudaDriverGetVersion(int* version) {
  *version = STANDIN_CUDA_VERSION;
  return kSuccess;
}
int cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
int cudaGetDeviceProperties(DeviceProperties<false>* out, int device) {
  return read_properties(out, device);
}
/// Its name in CUDA 12.
int cudaGetDeviceProperties_v2(DeviceProperties<true>* out, int device) {
  return read_properties(out, device);
}
int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return fail(kInvalidDevice);
  *value = find_attribute(attribute);
  return kSuccess;
}
int cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_device(device) || !is_device(peer)) return fail(kInvalidDevice);
  *can = device == peer ? 0 : 1;
  return kSuccess;
}
int cudaDeviceGetPCIBusId(char* text, int size, int device) {
  if (!is_device(device)) return fail(kInvalidDevice);
  std::snprintf(text, size, "00000000:%02X:00.0", device + 1);
  return kSuccess;
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

const char* cudaGetErrorName(int error) {
  switch (error) {
    case kSuccess:
      return "cudaSuccess";
    case kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case kNoDevice:
      return "cudaErrorNoDevice";
    case kNotReady:
      return "cudaErrorNotReady";
    default:
      return "cudaErrorOfTheStandIn";
  }
}
const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess:
      return "no error";
    case kOutOfMemory:
      return "out of memory";
    case kInvalidValue:
      return "invalid argument";
    case kInvalidConfiguration:
      return "invalid configuration argument";
    case kNoDevice:
      return "no CUDA-capable device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kNotReady:
      return "device not ready";
    case kNotSupported:
      return "operation not supported by the stand-in for CUDA";
    default:
      return "an error of the stand-in for CUDA";
  }
}
int cudaGetLastError() { return std::exchange(last_error, int{kSuccess}); }
int cudaPeekAtLastError() { return last_error; }

}  // extern "C"
