// SPDX-License-Identifier: BSD-3-Clause
// Kernels: they are registered and launched, and do nothing.
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "standin/runtime/cuda_types.h"
#include "standin/state/settings.h"

namespace tidegauge::standin {
namespace {

struct Configuration {
  Dimensions grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> configurations;

std::mutex variables_mutex;
std::unordered_map<const void*, void*>& variables() {
  static auto* table = new std::unordered_map<const void*, void*>;
  return *table;
}

/// Refuses what a device would refuse.
int launch(const Dimensions& grid, const Dimensions& block) {
  const bool is_valid = grid.x > 0 && grid.x <= INT_MAX && grid.y > 0 && grid.y <= USHRT_MAX &&
                        grid.z > 0 && grid.z <= USHRT_MAX && block.x > 0 && block.y > 0 &&
                        block.z > 0 &&
                        uint64_t{block.x} * block.y * block.z <= uint64_t(find_attribute(1));
  return is_valid ? kSuccess : fail(kInvalidConfiguration);
}

}  // namespace
}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size_bytes, int, int) {
  const std::lock_guard lock(variables_mutex);
  variables()[host] = std::calloc(1, std::max(size_bytes, size_t{1}));
}
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
int __cudaLaunchKernel(const void*, Dimensions grid, Dimensions block, void**, size_t, void*) {
  return launch(grid, block);
}
int cudaLaunchKernel(const void*, Dimensions grid, Dimensions block, void**, size_t, void*) {
  return launch(grid, block);
}
int cudaLaunchCooperativeKernel(const void*, Dimensions grid, Dimensions block, void**, size_t,
                                void*) {
  return launch(grid, block);
}
int cudaLaunchKernelExC(const LaunchConfiguration* configuration, const void*, void**) {
  return launch(configuration->grid, configuration->block);
}

int cudaFuncGetAttributes(FunctionAttributes* out, const void*) {
  const int version = settings().major * 10 + settings().minor;
  *out = {0, 0, 0, find_attribute(1), 32, version, version, 0, find_attribute(97), -1};
  return kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int block_size,
                                                           size_t shared_bytes, unsigned) {
  const int by_threads = find_attribute(39) / std::max(block_size, 1);
  const size_t shared_of_block = shared_bytes + find_attribute(111);
  const int by_shared = static_cast<int>(find_attribute(81) / shared_of_block);
  *blocks = std::min({by_threads, shared_bytes > 0 ? by_shared : INT_MAX, find_attribute(106)});
  return kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                  size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block_size,
                                                                shared_bytes, 0);
}
int cudaGetSymbolAddress(void** address, const void* symbol) {
  const std::lock_guard lock(variables_mutex);
  const auto found = variables().find(symbol);
  *address = found == variables().end() ? const_cast<void*>(symbol) : found->second;
  return kSuccess;
}
int cudaLibraryLoadData(const void** library, const void* code, ...) {
  *library = code;
  return kSuccess;
}
int cudaLibraryLoadFromFile(void** library, const char* name, ...) {
  *library = strdup(name);
  return kSuccess;
}
int cudaLibraryGetKernel(void** kernel, void*, const char* name) {
  *kernel = strdup(name);
  return kSuccess;
}
int cudaLibraryGetKernelCount(unsigned* count, void*) {
  *count = 0;
  return kSuccess;
}

}  // extern "C"
