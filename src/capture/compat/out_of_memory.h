// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <optional>
#include <string_view>

#include "core/ledger/post_mortem.h"
#include "tidegauge/export.h"

/// Recognizes out-of-memory errors by the types and messages of torch's exceptions. No other code
/// does this.
namespace tidegauge::out_of_memory {

/// None if the message is not about an allocation that failed.
TIDEGAUGE_API std::optional<FailedAllocation> read(std::string_view message);
/// The same for an exception; also looks at its type.
std::optional<FailedAllocation> read(const std::exception& error);

}  // namespace tidegauge::out_of_memory
