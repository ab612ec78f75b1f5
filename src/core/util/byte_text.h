// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tidegauge {

struct ByteUnit {
  std::string_view name;
  int64_t bytes;
};

inline constexpr std::array<ByteUnit, 5> kByteUnits{{
    {"B", 1},
    {"KiB", int64_t{1} << 10},
    {"MiB", int64_t{1} << 20},
    {"GiB", int64_t{1} << 30},
    {"TiB", int64_t{1} << 40},
}};

/// The size with at most four digits: "512 B", "1.50 KiB", "23.4 GiB". Every message and report
/// prints sizes this way, in C++ and Python.
///
/// Exception: `display_snapshot` prints in the unit that the user names, as torch does.
std::string render_bytes(int64_t size_bytes);

}  // namespace tidegauge
