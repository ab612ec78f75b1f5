// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// The numbers in the header of a trace file.
///
/// A reader of major version N reads all files of versions 1 to N. Increase the minor version,
/// which readers ignore, for a new table or column. Increase the major version for a change that an
/// old reader would misread. SQLite's user_version is 1000 * major + minor.
namespace tidegauge::trace {

inline constexpr int64_t kApplicationId = 0x54494445;  // "TIDE"
inline constexpr int64_t kMajorVersion = 1;
inline constexpr int64_t kMinorVersion = 3;
/// Since this version, pages have checksums (checksum_vfs.h).
inline constexpr int64_t kFirstCheckedVersion = 1003;

}  // namespace tidegauge::trace
