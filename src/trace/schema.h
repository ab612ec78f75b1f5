// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "trace/database.h"

/// The tables of a trace file. docs/trace-format.md explains them; change both together, and the
/// version in format_version.h.
namespace tidegauge::trace {

/// Creates the tables and views in an empty database.
void create_schema(Database& database, int64_t version);

/// Throws FormatError unless the database is a trace of a supported version. `path`: for messages.
void check_schema(Database& database, const std::string& path);

/// Turns an SqlError that occurred while reading `path` into a FormatError or IoError for users,
/// and throws it.
[[noreturn]] void throw_read_error(const SqlError& error, const std::string& path);

}  // namespace tidegauge::trace
