// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tidegauge {

/// The path of a module, "Net.layers.0.fc", for people to read. Of a path with more than 128 parts
/// only the first 64 and the last 63 remain, with the number of others between them. So the names
/// of modules that are nested in each other thousands of times do not fill all memory.
std::string shorten_path(std::string_view path);

/// The first 64 parts remain, and one less at the end.
inline constexpr size_t kPathEndParts = 64;
/// What stands for the parts in the middle.
std::string omitted_parts(size_t count);

}  // namespace tidegauge
