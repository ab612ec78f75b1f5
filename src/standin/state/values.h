// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// What a program reads from device memory, although no kernel ever writes there.
///
/// Known values are those that the host sent in a small copy, what small copies between devices and
/// collectives made of them, and what libtidegauge computed from known values (src/rehearse). All
/// other bytes are unknown, whatever is in the memory: they read as the value that `set_unknown`
/// gave for this thread, else as 0. Memory that torch's allocator hands out again is unknown
/// (`forget`), so no value is stale.
///
/// Large ranges of equal elements are known without being in memory.
///
/// Thread-safe.
namespace tidegauge::standin::values {

void copy_to_device(void* to, const void* from, size_t size_bytes);
void copy_to_host(void* to, const void* from, size_t size_bytes);
void copy_on_device(void* to, const void* from, size_t size_bytes);
/// By cudaMemset.
void fill(void* to, int byte, size_t size_bytes);
void forget(const void* begin, size_t size_bytes);

}  // namespace tidegauge::standin::values

// For libtidegauge. `is_assumed` marks values that were computed from unknown ones.
extern "C" {
/// From now on unknown bytes that this thread reads are copies of the element of `size_bytes` (at
/// most 16; 0: zeros). For ops that know their dtype.
void tidegauge_standin_set_unknown(const void* element, size_t size_bytes);
/// torch's allocator handed this memory out, or a kernel wrote to it.
void tidegauge_standin_forget(uint64_t address, size_t size_bytes);
void tidegauge_standin_write(void* to, const void* from, size_t size_bytes, int is_assumed);
/// The range consists of copies of an element of at most 16 bytes.
void tidegauge_standin_write_equal(void* to, size_t size_bytes, const void* element,
                                   size_t element_bytes, int is_assumed);
void tidegauge_standin_read(void* to, const void* from, size_t size_bytes);
/// What is known about the range: 0: nothing; 1: all its elements are equal, and `element` (16
/// bytes) gets one; 2: all bytes; 3: some bytes. `is_assumed`: 1 if any of them was assumed.
int tidegauge_standin_look(const void* from, size_t size_bytes, void* element,
                           size_t* element_bytes, int* is_assumed);
}
