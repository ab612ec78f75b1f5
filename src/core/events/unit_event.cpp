// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/unit_event.h"

#include <array>
#include <cstddef>

namespace tidegauge {
namespace {

constexpr std::array<std::string_view, kUnitEventKindCount> kKinds = {
    "storage", "gathering", "whole", "released", "post-forward sharded", "reduced"};
constexpr std::array<std::string_view, kGatherReasonCount> kReasons = {
    "forward", "backward", "prefetch", "user", "recompute"};

template <typename Enum, size_t count>
std::optional<Enum> parse(const std::array<std::string_view, count>& texts, std::string_view text) {
  for (size_t i = 0; i < count; ++i) {
    if (texts[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(UnitEventKind kind) { return kKinds[static_cast<size_t>(kind)]; }
std::string_view to_string(GatherReason reason) { return kReasons[static_cast<size_t>(reason)]; }

std::optional<UnitEventKind> parse_unit_event_kind(std::string_view text) {
  return parse<UnitEventKind>(kKinds, text);
}

std::optional<GatherReason> parse_gather_reason(std::string_view text) {
  return parse<GatherReason>(kReasons, text);
}

}  // namespace tidegauge
