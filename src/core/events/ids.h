// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tidegauge {

/// An integer that names one kind of thing and mixes with no other. 0 names nothing.
template <typename Tag, typename Value>
struct Id {
  Value value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Value v) : value(v) {}

  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;
};

using StorageId = Id<struct StorageTag, uint64_t>;
using ModuleId = Id<struct ModuleTag, uint32_t>;
using OpId = Id<struct OpTag, uint32_t>;
using StreamId = Id<struct StreamTag, uint16_t>;
using ThreadId = Id<struct ThreadTag, uint16_t>;
using StackId = Id<struct StackTag, uint32_t>;
/// A group of parameters that is gathered and released as one (FSDP2: a param group).
using UnitId = Id<struct UnitTag, uint32_t>;

}  // namespace tidegauge

template <typename Tag, typename Value>
struct std::hash<tidegauge::Id<Tag, Value>> {
  size_t operator()(tidegauge::Id<Tag, Value> id) const noexcept {
    return std::hash<Value>{}(id.value);
  }
};
