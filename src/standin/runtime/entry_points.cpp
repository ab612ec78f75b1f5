// SPDX-License-Identifier: BSD-3-Clause
// How the CUDA runtime hands out functions of the driver.
#include <cstdint>

#include "standin/runtime/cuda_types.h"

using namespace tidegauge::standin;

extern "C" {

int tidegauge_standin_find_driver(const char* name, void** function);

int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, uint64_t,
                                     int* result) {
  if (result != nullptr) *result = 0;
  return tidegauge_standin_find_driver(name, function);
}
/// Of CUDA 12.
int cudaGetDriverEntryPoint(const char* name, void** function, uint64_t, int* result) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, 0, result);
}

}  // extern "C"
