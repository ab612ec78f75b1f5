// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Marks what libtidegauge offers to other libraries; everything else above the core is hidden.
/// Put it on functions that are called, and on classes that are thrown or derived from, outside.
///
/// The core needs no mark: all of it is visible, because the Python extension uses it through
/// libtidegauge and must not bring a second copy. For the same reason no header may define a
/// variable that changes: each library would get its own.
#define TIDEGAUGE_API __attribute__((visibility("default")))
