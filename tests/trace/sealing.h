// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace tidegauge {

/// Writes the checksums of all pages of a trace file, as docs/trace-format.md defines them. Traces
/// before format 1.3 have none.
inline void seal(std::string& bytes) {
  constexpr size_t kPage = 4096;
  constexpr size_t kReservedBytes = 20;  // where SQLite's header has them, for each page
  if (bytes.size() < kPage || bytes[kReservedBytes] != 8) return;
  for (size_t page = 0; (page + 1) * kPage <= bytes.size(); ++page) {
    uint64_t hash = (0xcbf29ce484222325 ^ page) * 0x100000001b3;
    uint64_t word = 0;
    for (size_t i = 0; i < kPage - 8; i += 8) {
      std::memcpy(&word, bytes.data() + page * kPage + i, 8);
      hash = (hash ^ word) * 0x100000001b3;
    }
    std::memcpy(bytes.data() + (page + 1) * kPage - 8, &hash, 8);
  }
}

}  // namespace tidegauge
