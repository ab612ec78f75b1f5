// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tidegauge {

/// What a pickle may contain besides numbers, texts, lists, tuples and dictionaries.
enum class PickledObjects : uint8_t {
  None,
  DefaultDicts,  // without a factory or of numbers, as upstream's MemoryTracker writes them
};

/// Checks that a pickle contains only plain data. Returns a description of the first fault, or
/// nothing. Reads the opcodes without building any object.
///
/// Faults are opcodes that name, make or call an object, and values that would make a reader
/// allocate more memory than a small multiple of the file: lengths beyond its end, and memo
/// positions beyond those written so far (Python's own reader allocates up to them). Keys of
/// dictionaries must be texts or numbers of 32 bits: hashing nested tuples could take for ever, and
/// larger numbers can be chosen so that all have the same hash.
std::optional<std::string> find_pickle_fault(std::string_view data,
                                             PickledObjects objects = PickledObjects::None);

}  // namespace tidegauge
