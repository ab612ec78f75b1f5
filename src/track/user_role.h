// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "core/events/event.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// A label that a user gives a tensor.
struct UserRole {
  Role role;
  Since since;
};

/// "parameter", "buffer", "gradient" and "optimizer_state" hold since birth; "external" and
/// "input" hold from now on. UsageError for any other text.
TIDEGAUGE_API UserRole parse_user_role(std::string_view text);

}  // namespace tidegauge
