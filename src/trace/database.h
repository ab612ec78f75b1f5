// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tidegauge::trace {

/// An SQLite error with its code. Callers that know the path turn it into a FormatError or IoError,
/// so it never leaves src/trace.
class SqlError : public std::runtime_error {
 public:
  SqlError(int primary_code, const char* message)
      : std::runtime_error(message), code(primary_code) {}
  int code;
};

/// One prepared statement. Parameters and columns are counted from 0.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql);

  Statement& bind(int parameter, int64_t value);
  Statement& bind(int parameter, std::string_view text);
  Statement& bind(int parameter, std::span<const uint8_t> bytes);
  Statement& bind_null(int parameter);
  /// Returns true if there is a row. Throws SqlError if the step failed.
  bool step();
  /// Runs the statement to its end and resets it for other parameters, even if it fails.
  void run();
  void reset();

  int64_t integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }
  bool is_null(int column) const {
    return sqlite3_column_type(handle_.get(), column) == SQLITE_NULL;
  }
  /// Always valid UTF-8, even from a damaged file.
  std::string text(int column) const;
  /// Valid until the next step.
  std::span<const uint8_t> blob(int column) const;

 private:
  void check(int code);

  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

/// A connection. Used by one thread at a time.
class Database {
 public:
  /// `flags`: see sqlite3_open_v2.
  Database(const std::string& path, int flags);

  void execute(const char* sql);
  Statement prepare(const char* sql) { return {handle_.get(), sql}; }
  /// The value in the first column of the first row.
  int64_t query_integer(const char* sql);
  sqlite3* handle() { return handle_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
  };
  std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace tidegauge::trace
