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

/// Notifies the listeners when an allocation fails. compat/out_of_memory.h recognizes the failure
/// by torch's exceptions and messages.
namespace tidegauge::allocation_failure {

/// None if the exception is not about an allocation that failed.
std::optional<FailedAllocation> read(const std::exception& error);

/// Notifies the started listeners. Takes the lock of StorageRegistry. May throw if hardly any
/// memory is left.
void notify(const FailedAllocation& failed, OpId op, const std::string& message);

/// The same for a failure outside of ops. No effect if the message is not about an allocation that
/// failed.
TIDEGAUGE_API void notify_message(const std::string& message) noexcept;

/// Sets the function that gets the reports of all listeners after each failure. Null: none.
using Reporter = void (*)(const std::vector<CaptureListener::FailureReport>& reports);
void set_reporter(Reporter reporter);

}  // namespace tidegauge::allocation_failure
