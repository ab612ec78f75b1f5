// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/claimed_timers.h"

#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace tidegauge::claimed_timers {
namespace {

using Registry = std::remove_pointer_t<decltype(c10d::TimerRegistry())>;
using Entries = std::unordered_map<c10::DeviceType, Registry::Creator>;

/// The registry cannot give an entry back once it is replaced. An explicit instantiation may name
/// the private member that has it.
Entries& entries_of(Registry& registry);
template <Entries Registry::* member>
struct Access {
  friend Entries& entries_of(Registry& registry) { return registry.*member; }
};
template struct Access<&Registry::registry_>;

class NoTimer final : public c10d::Timer {
 public:
  std::optional<int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

/// torch's own entry; empty without CUDA.
Registry::Creator before;

}  // namespace

void install() {
  Registry::Creator& entry = entries_of(*c10d::TimerRegistry())[c10::kCUDA];
  before = std::exchange(entry, [](c10::Device) { return std::make_unique<NoTimer>(); });
}

void uninstall() {
  Entries& entries = entries_of(*c10d::TimerRegistry());
  if (before) {
    entries[c10::kCUDA] = std::exchange(before, {});
  } else {
    entries.erase(c10::kCUDA);
  }
}

}  // namespace tidegauge::claimed_timers
