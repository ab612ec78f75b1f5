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

/// Parses the role that a user names. "parameter", "buffer", "gradient" and "optimizer_state" apply
/// since birth; "external" and "input" apply from now on. Throws UsageError for any other text.
TIDEGAUGE_API UserRole parse_user_role(std::string_view text);

}  // namespace tidegauge
