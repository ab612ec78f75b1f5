// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "trace/database.h"

/// The tables of a trace file. docs/trace-format.md explains them; change both together.
///
/// A reader of major version N reads all files of versions 1 to N. Increase the minor version,
/// which readers ignore, for a new table or column. Increase the major version for a change that an
/// old reader would misread. SQLite's user_version is 1000 * major + minor.
namespace tidegauge::trace {

inline constexpr int64_t kApplicationId = 0x54494445;  // "TIDE"
inline constexpr int64_t kMajorVersion = 1;
inline constexpr int64_t kMinorVersion = 2;

/// Creates the tables and views in an empty database.
void create_schema(Database& database);

/// Throws FormatError unless the database is a trace of a supported version. `path`: for messages.
void check_schema(Database& database, const std::string& path);

/// Turns an SqlError that occurred while reading `path` into a FormatError or IoError for users,
/// and throws it.
[[noreturn]] void throw_read_error(const SqlError& error, const std::string& path);

}  // namespace tidegauge::trace
