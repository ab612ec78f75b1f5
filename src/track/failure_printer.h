// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tidegauge/export.h"

/// Prints the post-mortem of a failed allocation. If several trackers have one, it prints the one
/// with the most bytes. The first failure is printed in full. Later failures, for example of a
/// program that retries, are printed as one line.
namespace tidegauge::failure_printer {

/// Prints every failed allocation from now on. May be called more than once.
void install();

/// Sets the function that prints. Null restores the default, std::cerr.
using Print = void (*)(const std::string& text);
TIDEGAUGE_API void set_print(Print print);

}  // namespace tidegauge::failure_printer
