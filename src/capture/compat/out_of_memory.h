// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <optional>
#include <string_view>

#include "core/ledger/post_mortem.h"
#include "tidegauge/export.h"

/// Recognizes that memory ran out, by torch's exceptions and the wording of its messages. The only
/// place that does so.
namespace tidegauge::out_of_memory {

/// Nothing for a message about anything else.
TIDEGAUGE_API std::optional<FailedAllocation> read(std::string_view message);
/// The same for an exception, whose type may say it, too.
std::optional<FailedAllocation> read(const std::exception& error);

}  // namespace tidegauge::out_of_memory
