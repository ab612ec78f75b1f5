// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge::trace {

/// The number of bytes at the end of each page that SQLite leaves to us.
inline constexpr int kChecksumBytes = 8;

/// The name of an SQLite file system, registered at the first call, that ends each page of a trace
/// with a checksum and checks it when the page is read. A page that was damaged on a disk or on its
/// way makes the read fail with SQLITE_CORRUPT, whichever table it belongs to.
///
///   [ header, cells, free space ............................ | checksum ]
///                                                            reserved, 8 bytes
///
/// The checksum is FNV-1a over the page number, counted from 0, and the page's other bytes, all as
/// little-endian words of 8 bytes. Traces before format 1.3 reserve no bytes and are not checked.
/// Other programs can read the file; a program that changes it makes it a damaged trace.
const char* checksum_vfs();

}  // namespace tidegauge::trace
