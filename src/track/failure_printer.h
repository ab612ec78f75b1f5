// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "tidegauge/export.h"

/// Prints the post-mortem of a failed allocation: of several trackers', the one that accounts for
/// the most bytes. The first failure is printed in full, later ones (of a program that tries again)
/// as one line.
namespace tidegauge::failure_printer {

/// From now on capture's failures are printed. May be called again.
void install();

/// Prints by this function instead of to std::cerr; null: to std::cerr again.
using Print = void (*)(const std::string& text);
TIDEGAUGE_API void set_print(Print print);

}  // namespace tidegauge::failure_printer
