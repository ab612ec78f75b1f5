// SPDX-License-Identifier: BSD-3-Clause
#include "trace/checksum_vfs.h"

#include <sqlite3.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "trace/format_version.h"

namespace tidegauge::trace {
namespace {

constexpr char kName[] = "tidegauge";
constexpr int kHeaderBytes = 100;  // of an SQLite database

/// An open database. SQLite allocates it, followed by the file of the original system.
struct CheckedFile {
  sqlite3_file base;
  bool is_checked;
  int page_bytes;
};

sqlite3_file* original(sqlite3_file* file) {
  return reinterpret_cast<sqlite3_file*>(reinterpret_cast<CheckedFile*>(file) + 1);
}

const sqlite3_io_methods& methods(sqlite3_file* file) { return *original(file)->pMethods; }

uint64_t read_word(const uint8_t* bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t checksum_of(const uint8_t* page, int page_bytes, uint64_t number) {
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = (0xcbf29ce484222325 ^ number) * kPrime;
  for (int i = 0; i < page_bytes - kChecksumBytes; i += 8) {
    hash = (hash ^ read_word(page + i)) * kPrime;
  }
  return hash;
}

int64_t big_endian(const uint8_t* bytes, int count) {
  int64_t value = 0;
  for (int i = 0; i < count; ++i) value = value * 256 + bytes[i];
  return value;
}

/// Reads from the header whether pages have checksums. Returns false if the header contradicts
/// itself.
bool read_header(CheckedFile& file, const uint8_t* header) {
  file.is_checked = false;
  if (big_endian(header + 68, 4) != kApplicationId) return true;
  const int64_t size = big_endian(header + 16, 2);
  file.page_bytes = size == 1 ? 65536 : static_cast<int>(size);
  const int64_t version = big_endian(header + 60, 4);
  // A newer format may have other checksums; its version is refused later.
  if (version >= 1000 * (kMajorVersion + 1)) return true;
  file.is_checked = header[20] == kChecksumBytes;
  return file.is_checked == (version >= kFirstCheckedVersion);
}

bool is_page(const CheckedFile& file, int amount, sqlite3_int64 offset) {
  return file.is_checked && amount == file.page_bytes && offset % amount == 0;
}

int read(sqlite3_file* base, void* buffer, int amount, sqlite3_int64 offset) {
  const int code = methods(base).xRead(original(base), buffer, amount, offset);
  if (code != SQLITE_OK) return code;
  auto& file = *reinterpret_cast<CheckedFile*>(base);
  const auto* bytes = static_cast<const uint8_t*>(buffer);
  if (offset == 0 && amount >= kHeaderBytes && !read_header(file, bytes)) return SQLITE_CORRUPT;
  if (!is_page(file, amount, offset)) return SQLITE_OK;
  const uint64_t expected = checksum_of(bytes, amount, static_cast<uint64_t>(offset / amount));
  return read_word(bytes + amount - kChecksumBytes) == expected ? SQLITE_OK : SQLITE_CORRUPT;
}

int write(sqlite3_file* base, const void* buffer, int amount, sqlite3_int64 offset) {
  auto& file = *reinterpret_cast<CheckedFile*>(base);
  const auto* bytes = static_cast<const uint8_t*>(buffer);
  if (offset == 0 && amount >= kHeaderBytes) read_header(file, bytes);
  if (is_page(file, amount, offset)) {
    const uint64_t checksum = checksum_of(bytes, amount, static_cast<uint64_t>(offset / amount));
    // Written into SQLite's own page, whose last bytes it leaves to us: so its journal has valid
    // pages, and any SQLite can roll back a transaction of a process that was killed.
    auto* end = const_cast<uint8_t*>(bytes) + amount - kChecksumBytes;
    std::memcpy(end, &checksum, sizeof checksum);
  }
  return methods(base).xWrite(original(base), buffer, amount, offset);
}

// All other functions pass the call on. Version 2: no mapped memory, which nobody would check.
constexpr sqlite3_io_methods checked_methods = {
    .iVersion = 2,
    .xClose = [](sqlite3_file* f) { return methods(f).xClose(original(f)); },
    .xRead = &read,
    .xWrite = &write,
    .xTruncate = [](sqlite3_file* f,
                    sqlite3_int64 size) { return methods(f).xTruncate(original(f), size); },
    .xSync = [](sqlite3_file* f, int flags) { return methods(f).xSync(original(f), flags); },
    .xFileSize = [](sqlite3_file* f,
                    sqlite3_int64* size) { return methods(f).xFileSize(original(f), size); },
    .xLock = [](sqlite3_file* f, int lock) { return methods(f).xLock(original(f), lock); },
    .xUnlock = [](sqlite3_file* f, int lock) { return methods(f).xUnlock(original(f), lock); },
    .xCheckReservedLock =
        [](sqlite3_file* f, int* result) {
          return methods(f).xCheckReservedLock(original(f), result);
        },
    .xFileControl =
        [](sqlite3_file* f, int op, void* argument) {
          return methods(f).xFileControl(original(f), op, argument);
        },
    .xSectorSize = [](sqlite3_file* f) { return methods(f).xSectorSize(original(f)); },
    .xDeviceCharacteristics =
        [](sqlite3_file* f) { return methods(f).xDeviceCharacteristics(original(f)); },
    .xShmMap =
        [](sqlite3_file* f, int page, int size, int extends, void volatile** at) {
          return methods(f).xShmMap(original(f), page, size, extends, at);
        },
    .xShmLock = [](sqlite3_file* f, int offset, int count,
                   int flags) { return methods(f).xShmLock(original(f), offset, count, flags); },
    .xShmBarrier = [](sqlite3_file* f) { methods(f).xShmBarrier(original(f)); },
    .xShmUnmap = [](sqlite3_file* f,
                    int deletes) { return methods(f).xShmUnmap(original(f), deletes); },
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

sqlite3_vfs* original_system = nullptr;

int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  if ((flags & SQLITE_OPEN_MAIN_DB) == 0) {  // a journal
    return original_system->xOpen(original_system, name, file, flags, out_flags);
  }
  auto& checked = *reinterpret_cast<CheckedFile*>(file);
  checked = {};
  const int code = original_system->xOpen(original_system, name, original(file), flags, out_flags);
  // Without methods, SQLite does not close the file.
  if (original(file)->pMethods != nullptr) checked.base.pMethods = &checked_methods;
  return code;
}

bool register_system() {
  static sqlite3_vfs system;
  original_system = sqlite3_vfs_find(nullptr);
  system = *original_system;
  system.pNext = nullptr;
  system.zName = kName;
  system.szOsFile += static_cast<int>(sizeof(CheckedFile));
  system.xOpen = &open;
  return sqlite3_vfs_register(&system, /*makeDflt=*/0) == SQLITE_OK;
}

}  // namespace

const char* checksum_vfs() {
  static const bool is_registered = register_system();
  return is_registered ? kName : nullptr;
}

}  // namespace tidegauge::trace
