// SPDX-License-Identifier: BSD-3-Clause
#include "track/user_role.h"

#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {

UserRole parse_user_role(std::string_view text) {
  if (text == "parameter") return {Role::IsParameter, Since::Birth};
  if (text == "buffer") return {Role::IsBuffer, Since::Birth};
  if (text == "gradient") return {Role::IsGradient, Since::Birth};
  if (text == "optimizer_state") return {Role::IsOptimizerState, Since::Birth};
  if (text == "external") return {Role::IsExternal, Since::Now};
  if (text == "input") return {Role::IsInput, Since::Now};
  throw UsageError("invalid role '" + std::string(text) +
                   "' (expected parameter, buffer, gradient, optimizer_state, external or input)");
}

}  // namespace tidegauge
