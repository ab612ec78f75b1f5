// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

namespace tidegauge {

/// As torch.dtype prints it, without its "torch."; empty if it has no name. Lives for ever, which
/// the names that older versions of torch return do not.
std::string_view scalar_type_name(c10::ScalarType type);

}  // namespace tidegauge
