// SPDX-License-Identifier: BSD-3-Clause
//
// What a MemoryTracker knows of sharded parameters.
#include <atomic>
#include <utility>

#include "capture/hooks/moment_facts.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "track/memory_tracker.h"

namespace tidegauge {
namespace {

struct UnitBirths {
  UnitId unit;
  UnitFact fact;
};
thread_local std::vector<UnitBirths> unit_births;

}  // namespace

void MemoryTracker::mark_module(ModuleId module, ModuleState state) {
  const auto lock = StorageRegistry::lock();
  if (!ledger().has_statistics(module)) return;
  look_around();
  ++version_;
  apply(events::module_mark(origin(), module, state));
}

void MemoryTracker::add_unit(UnitId unit, const std::string& name) {
  const auto lock = StorageRegistry::lock();
  if (!units_) {
    ledger();  // what was before is not told to the units
    units_ = std::make_unique<ShardedUnits>();
    state_changed();
  }
  if (units_->add(unit, name) && sink_) sink_->name_unit(unit, name);
}

UnitId new_unit_id() {
  static std::atomic<uint32_t> last{0};
  return UnitId(++last);
}

void begin_unit_births(UnitId unit, UnitFact fact) { unit_births.push_back({unit, fact}); }

void end_unit_births() {
  if (!unit_births.empty()) unit_births.pop_back();
}

void MemoryTracker::apply_unit_births(StorageId storage) {
  if (unit_births.empty() || moment::in_optimizer_step()) return;
  apply_fact(unit_births.back().unit, unit_births.back().fact, storage);
}

void MemoryTracker::apply_fact(UnitId unit, UnitFact fact, StorageId storage) {
  const auto known = ledger().find_storage(storage);
  if (!known) return;
  const auto label = ShardedUnits::decide(fact, known->category);
  // A shard that is gathered without a copy stays with its own unit.
  if (label || fact != UnitFact::GatherBuffer) own_storage(unit, storage);
  if (label) apply(events::storage_relabelled(origin(), storage, label->role, label->since));
}

void MemoryTracker::share_unit(StorageId owner, StorageId storage) {
  if (const UnitId unit = units_->unit_of(owner)) own_storage(unit, storage);
}

void MemoryTracker::own_storage(UnitId unit, StorageId storage) {
  apply(UnitEvent{.time_ns = ledger().now().time_ns,
                  .storage = storage,
                  .unit = unit,
                  .kind = UnitEventKind::StorageOwned});
}

void MemoryTracker::apply(const UnitEvent& event) {
  if (units_->apply(event, ledger()) && sink_) sink_->record_unit(event);
}

void MemoryTracker::label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor) {
  register_fake(tensor);
  const auto lock = StorageRegistry::lock();
  if (!units_) return;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage, /*even_empty=*/true);
    if (!observed.id) return;
    if (!ledger().find_storage(observed.id)) {
      if (is_of_another_mode(storage)) return;
      apply(events::storage_born(origin(observed.device), observed.id, observed.size_bytes));
    }
    apply_fact(unit, fact, observed.id);
  });
  settle_units();
}

void MemoryTracker::settle_units() {
  units_->settle_if_due([this] { return was_started_ ? ledger().peak() : Snapshot{}; });
}

void MemoryTracker::change_unit(UnitId unit, UnitEventKind kind, GatherReason reason) {
  const auto lock = StorageRegistry::lock();
  if (!units_) return;
  look_around();
  apply(UnitEvent{.time_ns = time_ns_, .unit = unit, .kind = kind, .reason = reason});
  settle_units();  // a program that only evaluates tells of nothing else
}

void MemoryTracker::begin_gather(UnitId unit, GatherReason reason) {
  change_unit(unit, UnitEventKind::GatherBegun, reason);
}

void MemoryTracker::finish_gather(UnitId unit) { change_unit(unit, UnitEventKind::GatherFinished); }

void MemoryTracker::release(UnitId unit, bool keeps_post_forward_shard) {
  change_unit(unit, keeps_post_forward_shard ? UnitEventKind::ReleasedToPostForwardShard
                                             : UnitEventKind::Released);
}

void MemoryTracker::reduce(UnitId unit) { change_unit(unit, UnitEventKind::Reduced); }

std::vector<UnitReport> MemoryTracker::units() {
  const auto lock = StorageRegistry::lock();
  if (!units_) return {};
  return units_->read(was_started_ ? ledger().peak() : Snapshot{});
}

std::optional<Category> MemoryTracker::find_category(const at::Tensor& tensor) {
  const auto lock = StorageRegistry::lock();
  std::optional<Category> category;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const auto known = ledger().find_storage(StorageRegistry::get().observe(storage).id);
    if (known && !category) category = known->category;
  });
  return category;
}

}  // namespace tidegauge
