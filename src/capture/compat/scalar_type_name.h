// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

namespace tidegauge {

/// The name that torch.dtype prints, without "torch."; empty if it has none. The text is never
/// destroyed, unlike the names that older versions of torch return.
std::string_view scalar_type_name(c10::ScalarType type);

}  // namespace tidegauge
