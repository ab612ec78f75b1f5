// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "core/events/ids.h"
#include "core/ledger/post_mortem.h"
#include "tidegauge/export.h"

/// An allocation that failed: each tracker that is started keeps a post-mortem, and records it. The
/// report of the tracker that knows most is printed: the first in full, later ones, of programs
/// that try again, as one line.
namespace tidegauge::allocation_failure {

/// Nothing for exceptions that are about anything else.
std::optional<FailedAllocation> read(const std::exception& error);

/// Without the lock of StorageCapture. May throw if memory is short indeed.
void tell(const FailedAllocation& failed, OpId op, const std::string& message);

/// Likewise, of what failed outside of operators; nothing if the message is about anything else.
TIDEGAUGE_API void tell_message(const std::string& message) noexcept;

/// How reports are printed, instead of to std::cerr.
using Print = void (*)(const std::string& text);
TIDEGAUGE_API void set_print(Print print);

}  // namespace tidegauge::allocation_failure
