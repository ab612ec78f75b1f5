// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace tidegauge {

/// A typed integer id: ids of different types do not convert to each other. 0 means none.
template <typename Tag, typename Value>
struct Id {
  Value value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Value v) : value(v) {}

  constexpr explicit operator bool() const { return value != 0; }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace tidegauge

template <typename Tag, typename Value>
struct std::hash<tidegauge::Id<Tag, Value>> {
  size_t operator()(tidegauge::Id<Tag, Value> id) const noexcept {
    return std::hash<Value>{}(id.value);
  }
};
