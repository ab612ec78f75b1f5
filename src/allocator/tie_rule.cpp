// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/tie_rule.h"

#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "core/util/quote.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

constexpr std::array<TieRuleRow, 3> kRules{{
    {TieRule::Address, "address", "up to 2.11"},
    {TieRule::PrivateCounter, "private-counter", "2.12"},
    {TieRule::SegmentCounter, "counter", "2.13 and later"},
}};
using Minor = std::pair<int, int>;
constexpr Minor kFirstWithPrivateCounter{2, 12};
constexpr Minor kFirstWithCounter{2, 13};

/// "2.12.1+cu130" is 2.12; the newest one that this file knows if the text is not a version.
Minor parse_minor(const std::string& text) {
  Minor minor;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, minor.first);
  if (error != std::errc() || dot == end || *dot != '.') return kFirstWithCounter;
  const auto [rest, second_error] = std::from_chars(dot + 1, end, minor.second);
  return second_error == std::errc() ? minor : kFirstWithCounter;
}

}  // namespace

std::span<const TieRuleRow> tie_rules() { return kRules; }

TieRule parse_tie_rule(std::string_view name) {
  std::string names;
  for (const TieRuleRow& row : kRules) {
    if (row.name == name) return row.rule;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  throw UsageError("unknown tie rule " + quote(name) + " (expected one of " + names + ")");
}

TieRule find_tie_rule(std::string_view torch_version) {
  const Minor minor = parse_minor(std::string(torch_version));
  if (minor < kFirstWithPrivateCounter) return TieRule::Address;
  return minor < kFirstWithCounter ? TieRule::PrivateCounter : TieRule::SegmentCounter;
}

std::string_view to_string(TieRule rule) {
  for (const TieRuleRow& row : kRules) {
    if (row.rule == rule) return row.name;
  }
  return {};
}

}  // namespace tidegauge
