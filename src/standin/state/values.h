// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// What a program reads from device memory, although no kernel ever writes there.
///
/// Known values are those that the host sent in a small copy, and what small copies between devices
/// and collectives made of them. All other bytes are unknown, whatever is in the memory: they read
/// as the value that `set_unknown` gave for this thread, else as 0. Memory that torch's allocator
/// hands out again is unknown (`forget`), so no value is stale.
///
/// A kernel that changes known values in place changes nothing here: they keep the value that the
/// host sent.
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

extern "C" {
/// From now on unknown bytes that this thread reads are copies of the element of `size_bytes` (at
/// most 16; 0: zeros). libtidegauge_cuda calls it around ops that know their dtype.
void tidegauge_standin_set_unknown(const void* element, size_t size_bytes);
/// torch's allocator handed this memory out.
void tidegauge_standin_forget(uint64_t address, size_t size_bytes);
/// The program fills memory with known elements.
void tidegauge_standin_write(void* to, const void* from, size_t size_bytes);
}
