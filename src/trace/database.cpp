// SPDX-License-Identifier: BSD-3-Clause
#include "trace/database.h"

#include "core/util/quote.h"
#include "core/util/utf8.h"
#include "trace/checksum_vfs.h"

namespace tidegauge::trace {
namespace {

/// A damaged file may contain any bytes instead of text, and SQLite repeats them in its messages.
[[noreturn]] void fail(sqlite3* database, int code) {
  const char* text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  throw SqlError(code & 0xff, short_line(text).c_str());
}

}  // namespace

Statement::Statement(sqlite3* database, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database, sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) fail(database, code);
  handle_.reset(statement);
}

void Statement::check(int code) {
  if (code != SQLITE_OK) fail(sqlite3_db_handle(handle_.get()), code);
}

Statement& Statement::bind(int parameter, int64_t value) {
  check(sqlite3_bind_int64(handle_.get(), parameter + 1, value));
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view text) {
  check(sqlite3_bind_text64(handle_.get(), parameter + 1, text.data(), text.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(int parameter, std::span<const uint8_t> bytes) {
  check(sqlite3_bind_blob64(handle_.get(), parameter + 1, bytes.data(), bytes.size(),
                            SQLITE_TRANSIENT));
  return *this;
}

Statement& Statement::bind_null(int parameter) {
  check(sqlite3_bind_null(handle_.get(), parameter + 1));
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) fail(sqlite3_db_handle(handle_.get()), code);
  return false;
}

void Statement::run() {
  sqlite3_step(handle_.get());
  check(sqlite3_reset(handle_.get()));  // returns the error of the step again
}

void Statement::reset() { sqlite3_reset(handle_.get()); }

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  const int size = sqlite3_column_bytes(handle_.get(), column);
  return text != nullptr ? to_valid_utf8({text, static_cast<size_t>(size)}) : std::string();
}

std::span<const uint8_t> Statement::blob(int column) const {
  const auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(handle_.get(), column));
  const int size = sqlite3_column_bytes(handle_.get(), column);
  return {bytes, bytes != nullptr ? static_cast<size_t>(size) : 0};
}

Database::Database(const std::string& path, int flags) {
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &database, flags, checksum_vfs());
  handle_.reset(database);
  if (code != SQLITE_OK) fail(database, code);
}

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(handle_.get(), code);
}

int64_t Database::query_integer(const char* sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

}  // namespace tidegauge::trace
