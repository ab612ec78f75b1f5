// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "capture/storages/capture_listener.h"
#include "core/events/ids.h"
#include "core/ledger/post_mortem.h"
#include "tidegauge/export.h"

/// Notices that memory has run out, and notifies the listeners. Reads nothing itself:
/// compat/out_of_memory.h knows torch's exceptions and messages.
namespace tidegauge::allocation_failure {

/// Nothing for an exception about anything else.
std::optional<FailedAllocation> read(const std::exception& error);

/// Notifies the started listeners, without the lock of StorageRegistry. May throw if memory is very
/// short.
void notify(const FailedAllocation& failed, OpId op, const std::string& message);

/// The same for a failure outside of ops; nothing if the message is about anything else.
TIDEGAUGE_API void notify_message(const std::string& message) noexcept;

/// Gets the reports of all listeners after each failure; null: no reporter.
using Reporter = void (*)(const std::vector<CaptureListener::FailureReport>& reports);
void set_reporter(Reporter reporter);

}  // namespace tidegauge::allocation_failure
