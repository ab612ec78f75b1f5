// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/events/ids.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// A change of a unit of sharded parameters.
enum class UnitEventKind : uint8_t {
  StorageOwned,  ///< the storage belongs to the unit since its last resize or relabel
  GatherBegun,
  GatherFinished,  ///< the unsharded parameters exist
  Released,
  ReleasedToPostForwardShard,
  Reduced,  ///< its gradients were reduced
};
inline constexpr uint8_t kUnitEventKindCount = 6;

/// The spelling in trace files: "storage", "gathering", "whole", "released", "post-forward
/// sharded", "reduced".
std::string_view to_string(UnitEventKind kind);
/// The inverse functions; none for any other text.
std::optional<UnitEventKind> parse_unit_event_kind(std::string_view text);
std::optional<GatherReason> parse_gather_reason(std::string_view text);

/// One fact about a unit. It is not an Event and has no sequence number: it lies between two
/// events.
struct UnitEvent {
  int64_t time_ns = 0;
  StorageId storage{};  ///< StorageOwned
  UnitId unit{};
  UnitEventKind kind{};
  GatherReason reason{};  ///< GatherBegun

  friend bool operator==(const UnitEvent&, const UnitEvent&) = default;
};

}  // namespace tidegauge
