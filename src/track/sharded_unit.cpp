// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/sharded_unit.h"

#include <memory>
#include <utility>

#include "track/mem_engine.h"
#include "track/unit_births.h"

namespace tidegauge {
namespace {

/// Calls `notify` for every tracker, after adding the unit to those that do not know it.
template <typename Notify>
void notify_trackers(const ShardedUnit& unit, Notify&& notify) {
  for (const auto& tracker : MemEngine::living()) {
    tracker->add_unit(UnitId(unit.id()), unit.name());
    notify(*tracker);
  }
}

}  // namespace

ShardedUnit::ShardedUnit(std::string name) : id_(new_unit_id().value), name_(std::move(name)) {
  notify_trackers(*this, [](MemEngine&) {});
}

void ShardedUnit::label(UnitFact fact, const at::Tensor& tensor) const {
  if (!tensor.defined()) return;
  notify_trackers(*this,
                  [&](MemEngine& tracker) { tracker.label_unit(UnitId(id_), fact, tensor); });
}

void ShardedUnit::begin_gather(GatherReason reason) const {
  notify_trackers(*this, [&](MemEngine& tracker) { tracker.begin_gather(UnitId(id_), reason); });
}

void ShardedUnit::finish_gather() const {
  notify_trackers(*this, [&](MemEngine& tracker) { tracker.finish_gather(UnitId(id_)); });
}

void ShardedUnit::release(bool keeps_post_forward_shard) const {
  notify_trackers(
      *this, [&](MemEngine& tracker) { tracker.release(UnitId(id_), keeps_post_forward_shard); });
}

void ShardedUnit::reduce() const {
  notify_trackers(*this, [&](MemEngine& tracker) { tracker.reduce(UnitId(id_)); });
}

UnitBirths::UnitBirths(const ShardedUnit& unit, UnitFact fact) {
  begin_unit_births(UnitId(unit.id()), fact);
}

UnitBirths::~UnitBirths() { end_unit_births(); }

}  // namespace tidegauge
