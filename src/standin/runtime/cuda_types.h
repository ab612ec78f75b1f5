// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// Our own declarations of what torch exchanges with the CUDA runtime and driver, as far as
/// torch or the stand-in reads it. tests/standin compares the layouts with NVIDIA's headers where
/// they are installed.
namespace tidegauge::standin {

/// Errors of the runtime; those of the driver have the same numbers.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kMissingConfiguration = 52,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNotReady = 600,
  kNotSupported = 801,
};

enum CopyKind : int { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kAnyToAny };

struct Dimensions {
  unsigned x, y, z;
};

/// The beginning of cudaLaunchConfig_t and of CUlaunchConfig.
struct LaunchConfiguration {
  Dimensions grid, block;
};

/// cudaPointerAttributes.
struct PointerAttributes {
  int type;  // 0: not known to CUDA, 1: host, 2: device
  int device;
  void* device_pointer;
  void* host_pointer;
};

/// cudaFuncAttributes, as far as torch reads it.
struct FunctionAttributes {
  size_t shared_bytes, constant_bytes, local_bytes;
  int threads_per_block, registers, ptx_version, binary_version, cache_mode;
  int dynamic_shared_bytes, shared_carveout;
};

/// cudaDeviceProp of CUDA 12 and 13, up to the last member that torch reads. CUDA 13 removed
/// members, so the layouts differ; `Removed` is an int in CUDA 12.
template <bool kIsCuda12>
struct Removed {
  int value;
};
template <>
struct Removed<false> {};

template <bool kIsCuda12>
struct DeviceProperties {
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
  [[no_unique_address]] Removed<kIsCuda12> clock_rate;
  size_t constant_bytes;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
  int overlap[kIsCuda12 ? 2 : 1];  // deviceOverlap of CUDA 12, then multiProcessorCount
  int timeout_and_integrated[kIsCuda12 ? 2 : 1];
  int can_map_host_memory;
  int texture_limits[kIsCuda12 ? 41 : 39];
  size_t surface_alignment;
  int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines;
  int unified_addressing;
  int memory_clock_and_width[kIsCuda12 ? 2 : 1];
  int l2_bytes, persisting_l2_bytes;
  int threads_per_multiprocessor;
  int stream_priorities, global_l1, local_l1;
  size_t shared_bytes_per_multiprocessor;
  int registers_per_multiprocessor;
  int managed_memory, multi_gpu_board[2], native_atomics;
  int access[kIsCuda12 ? 3 : 2];
  int preemption, host_pointers, cooperative_launch[kIsCuda12 ? 2 : 1];
  size_t shared_bytes_per_block_optin;
  int page_tables, managed_access, blocks_per_multiprocessor, access_window;
  size_t reserved_shared_bytes_per_block;
  int reserved[96];
};

/// CUmemAllocationProp, as far as it is read.
struct AllocationProperties {
  int type;
  int handle_types;
  int location_type;  // 1: a device
  int location_id;
};

/// Keeps the error for cudaGetLastError and returns it.
int fail(Error error);
int current_device();
void set_current_device(int device);
bool is_device(int device);
/// The value of an attribute; the runtime and the driver number them alike.
int find_attribute(int attribute);

}  // namespace tidegauge::standin
