// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// The stand-in for CUDA, in a process that has it: functions of src/standin/state/values.h, which
/// explains them. We do not link it.
namespace tidegauge::rehearsal {

struct Standin {
  void (*set_unknown)(const void* element, size_t size_bytes);
  void (*forget)(uint64_t address, size_t size_bytes);
  void (*write)(void* to, const void* from, size_t size_bytes, int is_assumed);
  void (*write_equal)(void* to, size_t size_bytes, const void* element, size_t element_bytes,
                      int is_assumed);
  void (*read)(void* to, const void* from, size_t size_bytes);
  int (*look)(const void* from, size_t size_bytes, void* element, size_t* element_bytes,
              int* is_assumed);
};

/// Null in a process without it.
const Standin* find_standin();

}  // namespace tidegauge::rehearsal
