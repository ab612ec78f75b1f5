// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "tidegauge/export.h"

/// Sees every op of the threads it is switched on in: a boxed fallback on the dispatch key Fake,
/// which sits below Python and autograd and belongs to nobody else in torch 2.13, and typed_ops.h
/// for the common ones. It follows a backward into the engine's threads by itself. The one handler
/// of that key in the process.
namespace tidegauge::op_hook {

/// Counted: as many stops as starts switch it off. NotSupported if the key is taken.
void start_in_this_thread();
void stop_in_this_thread();

/// The list of trackers changed: what threads remember of them holds no longer.
void tell_again();

/// What went wrong in our own code while an op ran, and was kept from it.
TIDEGAUGE_API int64_t failure_count();
TIDEGAUGE_API std::string first_failure();

}  // namespace tidegauge::op_hook
