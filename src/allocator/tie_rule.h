// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tidegauge {

/// How to choose among free blocks of the same size.
enum class TieRule : uint8_t {
  Address,         ///< the lowest address
  SegmentCounter,  ///< the oldest segment, then the lowest address
  PrivateCounter,  ///< SegmentCounter in private pools, Address in the default pool
};

struct TieRuleRow {
  TieRule rule;
  std::string_view name;      ///< "private-counter"
  std::string_view versions;  ///< the versions of torch that use it: "2.12"
};
std::span<const TieRuleRow> tie_rules();

/// Throws UsageError for a name that no rule has.
TieRule parse_tie_rule(std::string_view name);
/// The rule of a version of torch ("2.12.1+cu130"); that of the newest versions if it cannot be
/// read.
TieRule find_tie_rule(std::string_view torch_version);
std::string_view to_string(TieRule rule);

}  // namespace tidegauge
