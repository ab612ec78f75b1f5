// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tidegauge {

/// Checks that a pickle contains only numbers, texts, lists, tuples and dictionaries. Returns a
/// description of the first fault, or nothing. Reads the opcodes without building any object.
///
/// Faults are opcodes that name, make or call an object, and values that would make a reader
/// allocate more memory than a small multiple of the file: lengths beyond its end, and memo
/// positions beyond those written so far (Python's own reader allocates up to them). Keys of
/// dictionaries must be numbers or texts: hashing nested tuples could take for ever.
std::optional<std::string> find_pickle_fault(std::string_view data);

}  // namespace tidegauge
