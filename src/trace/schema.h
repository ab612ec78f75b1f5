// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "trace/database.h"

/// The tables of a trace file. docs/trace-format.md says what they mean; change both together.
///
/// A reader of major version N reads all files of versions 1 to N. A new table or column raises the
/// minor version, which readers ignore; a change that an old reader would misread raises the major
/// version. SQLite's user_version holds 1000 * major + minor.
namespace tidegauge::trace {

inline constexpr int64_t kApplicationId = 0x54494445;  // "TIDE"
inline constexpr int64_t kMajorVersion = 1;
inline constexpr int64_t kMinorVersion = 2;

/// Creates the tables and views in an empty database.
void create_schema(Database& database);

/// FormatError unless it is a trace of a supported version. `path` is for messages.
void check_schema(Database& database, const std::string& path);

/// Throws a FormatError or IoError that explains to users an SqlError while reading `path`.
[[noreturn]] void throw_read_error(const SqlError& error, const std::string& path);

}  // namespace tidegauge::trace
