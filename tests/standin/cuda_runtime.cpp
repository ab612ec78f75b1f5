// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for the CUDA runtime, for tests of torch's real CUDA allocator on machines without a
// GPU. Device memory is address space, kernels do nothing, streams and events are always done.
//
// Only functions whose results torch reads are here, with our own declarations of the public API of
// CUDA 13. build_runtime.py adds all others that torch needs: they return success.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kMissingConfiguration = 52,
  kInvalidDevice = 101,
};

constexpr int kDevices = 2;
constexpr size_t kMemoryBytes = size_t(16) << 30;  // of each device
constexpr int kVersion = 13000;
constexpr int kMultiprocessors = 132;
constexpr int kThreadsPerBlock = 1024;
constexpr int kThreadsPerMultiprocessor = 2048;

struct Segment {
  size_t size_bytes;
  int device;
};
std::mutex mutex;
std::unordered_map<void*, Segment>& segments() {
  static auto* table = new std::unordered_map<void*, Segment>;
  return *table;
}
size_t used_bytes[kDevices];

thread_local int current_device = 0;
thread_local int last_error = kSuccess;

int fail(Error error) { return last_error = error; }

int allocate(void** out, size_t size_bytes, int device) {
  const std::lock_guard lock(mutex);
  if (used_bytes[device] + size_bytes > kMemoryBytes) return fail(kMemoryAllocation);
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail(kMemoryAllocation);
  segments()[memory] = {size_bytes, device};
  used_bytes[device] += size_bytes;
  *out = memory;
  return kSuccess;
}

int release(void* memory) {
  const std::lock_guard lock(mutex);
  const auto found = segments().find(memory);
  if (found == segments().end()) return memory == nullptr ? kSuccess : fail(kInvalidValue);
  used_bytes[found->second.device] -= found->second.size_bytes;
  munmap(memory, found->second.size_bytes);
  segments().erase(found);
  return kSuccess;
}

struct Dimensions {
  unsigned x, y, z;
};
struct Configuration {
  Dimensions grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

/// The beginning of cudaDeviceProp of CUDA 13, as far as torch's choice of kernels reads it.
struct Properties {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned luid_mask;
  size_t total_memory_bytes;
  size_t shared_bytes_per_block;
  int registers_per_block;
  int warp_size;
  size_t pitch;
  int threads_per_block;
  int block_size[3];
  int grid_size[3];
  size_t constant_bytes;
  int major, minor;
  size_t texture_alignment[2];
  int multiprocessor_count;
  int flags[2];
  int texture_limits[39];
  size_t surface_alignment;
  int concurrent_kernels, ecc, pci[3], tcc, async_engines, unified_addressing, bus_width;
  int l2_bytes, persisting_l2_bytes;
  int threads_per_multiprocessor;
};

}  // namespace

extern "C" {

// Devices
int cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return kSuccess;
}
int cudaGetDevice(int* device) {
  *device = current_device;
  return kSuccess;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return fail(kInvalidDevice);
  current_device = device;
  return kSuccess;
}
int cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
int cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
int cudaGetDeviceProperties(Properties* out, int device) {
  if (device < 0 || device >= kDevices) return fail(kInvalidDevice);
  *out = {};
  std::snprintf(out->name, sizeof out->name, "stand-in for a GPU");
  out->uuid[0] = static_cast<char>(device + 1);
  out->total_memory_bytes = kMemoryBytes;
  out->shared_bytes_per_block = 48 << 10;
  out->registers_per_block = 64 << 10;
  out->warp_size = 32;
  out->threads_per_block = out->block_size[0] = out->block_size[1] = kThreadsPerBlock;
  out->block_size[2] = 64;
  out->grid_size[0] = INT32_MAX;
  out->grid_size[1] = out->grid_size[2] = UINT16_MAX;
  out->major = 9;
  out->multiprocessor_count = kMultiprocessors;
  out->unified_addressing = 1;
  out->threads_per_multiprocessor = kThreadsPerMultiprocessor;
  return kSuccess;
}
int cudaDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;  // 75: major compute capability; else: not supported
  return kSuccess;
}
int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return kSuccess;
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}
/// The driver's functions, which only pools of virtual memory need, do not exist.
int cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, uint64_t,
                                     int* result) {
  *function = nullptr;
  *result = 1;
  return kSuccess;
}

// Errors
const char* cudaGetErrorName(int) { return "cudaErrorOfTheStandIn"; }
const char* cudaGetErrorString(int error) {
  return error == kMemoryAllocation ? "out of memory" : "an error of the stand-in";
}
int cudaGetLastError() { return std::exchange(last_error, int(kSuccess)); }
int cudaPeekAtLastError() { return last_error; }

// Memory
int cudaMalloc(void** memory, size_t size_bytes) {
  return allocate(memory, size_bytes, current_device);
}
int cudaFree(void* memory) { return release(memory); }
int cudaMallocAsync(void** memory, size_t size_bytes, void*) {
  return allocate(memory, size_bytes, current_device);
}
int cudaFreeAsync(void* memory, void*) { return release(memory); }
int cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const std::lock_guard lock(mutex);
  *total_bytes = kMemoryBytes;
  *free_bytes = kMemoryBytes - used_bytes[current_device];
  return kSuccess;
}
int cudaDeviceGetDefaultMemPool(void** pool, int) {
  static int any;
  *pool = &any;
  return kSuccess;
}
int cudaMemPoolGetAttribute(void*, int, uint64_t* value) {
  *value = 0;
  return kSuccess;
}

// Streams and events
int cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  *stream = new char;
  return kSuccess;
}
int cudaStreamGetPriority(void*, int* priority) {
  *priority = 0;
  return kSuccess;
}
int cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return kSuccess;
}
int cudaStreamGetCaptureInfo(void*, int* status, uint64_t* id, void**, void*, void*, size_t*) {
  *status = 0;
  if (id != nullptr) *id = 0;
  return kSuccess;
}
int cudaEventCreateWithFlags(void** event, unsigned) {
  *event = new char;
  return kSuccess;
}
int cudaEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 0;
  return kSuccess;
}

// Kernels
void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
char __cudaInitModule(void**) { return 1; }
unsigned __cudaPushCallConfiguration(Dimensions grid, Dimensions block, size_t shared_bytes,
                                     void* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return kSuccess;
}
int __cudaPopCallConfiguration(Dimensions* grid, Dimensions* block, size_t* shared_bytes,
                               void** stream) {
  if (configurations.empty()) return fail(kMissingConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *stream = last.stream;
  return kSuccess;
}
int __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int block_size,
                                                           size_t, unsigned) {
  *blocks = kThreadsPerMultiprocessor / std::max(block_size, 1);
  return kSuccess;
}

}  // extern "C"
