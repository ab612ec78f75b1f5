// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tidegauge {

/// What is wrong with a pickle that should hold numbers, texts, lists, tuples and dictionaries and
/// nothing else; nothing if it does. Nothing is built: the opcodes are only walked over.
///
/// Refused are opcodes that name, make or call an object, and what would make a reader take more
/// memory than a small multiple of the file: lengths beyond its end, and places in the memo
/// beyond what was read so far (Python's own reader allocates up to them).
std::optional<std::string> find_pickle_fault(std::string_view data);

}  // namespace tidegauge
