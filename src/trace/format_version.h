// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// The numbers in the header of a trace file.
///
/// A reader of major version N reads all files of versions 1 to N. Increase the minor version,
/// which readers ignore, for a new table or column. Increase the major version for a change that an
/// old reader would misread. SQLite's user_version is 1000 * major + minor.
///
/// A file is written in the oldest version that has all that it needs: 2.0 if events may be dropped
/// (RecorderOptions::keep), because one marker may then begin several steps.
namespace tidegauge::trace {

inline constexpr int64_t kApplicationId = 0x54494445;  // "TIDE"
inline constexpr int64_t kMajorVersion = 2;            // the highest that is read
inline constexpr int64_t kPlainVersion = 1003;
inline constexpr int64_t kVersionWithDrops = 2000;
/// Since this version, pages have checksums (checksum_vfs.h).
inline constexpr int64_t kFirstCheckedVersion = 1003;

}  // namespace tidegauge::trace
