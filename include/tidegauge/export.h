// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Marks the functions and classes that libtidegauge exports; everything else above the core is
/// hidden. Put it on functions that other libraries call, and on classes that they throw or derive
/// from.
///
/// The core needs no mark: all of it is visible, because the Python extension _C uses it through
/// libtidegauge and must not contain another copy. For the same reason no header may define a
/// mutable variable: each library would get its own.
#define TIDEGAUGE_API __attribute__((visibility("default")))
