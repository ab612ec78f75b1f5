// SPDX-License-Identifier: BSD-3-Clause
//
// What a MemoryTracker knows of sharded parameters.
#include <atomic>
#include <mutex>
#include <utility>

#include "capture/memory_tracker.h"
#include "capture/moment_facts.h"
#include "capture/storage_capture.h"

namespace tidegauge {
namespace {

struct UnitBirths {
  UnitId unit;
  UnitFact fact;
};
thread_local std::vector<UnitBirths> unit_births;

std::lock_guard<SpinLock> lock_capture() {
  return std::lock_guard<SpinLock>(StorageCapture::get().mutex());
}

}  // namespace

void MemoryTracker::mark_module(ModuleId module, ModuleState state) {
  const auto lock = lock_capture();
  if (!ledger_.has_statistics(module)) return;
  look_at_clock();
  ++version_;
  apply(events::module_mark(origin(), module, state));
}

void MemoryTracker::add_unit(UnitId unit, std::string name) {
  const auto lock = lock_capture();
  if (!units_) units_ = std::make_unique<ShardedUnits>();
  units_->add(unit, std::move(name));
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
  const auto known = ledger_.find_storage(storage);
  if (!known) return;
  const auto label = ShardedUnits::decide(fact, known->category);
  if (!label) {
    // A shard that is gathered without a copy stays with its own unit.
    if (fact != UnitFact::GatherBuffer) {
      units_->assign(unit, storage, *known, ledger_.since_sequence(storage), ledger_.now());
    }
    return;
  }
  units_->assign(unit, storage, *known, ledger_.since_sequence(storage), ledger_.now());
  apply(events::storage_relabelled(origin(), storage, label->role, label->since));
}

void MemoryTracker::share_unit(StorageId owner, StorageId storage) {
  const UnitId unit = units_->unit_of(owner);
  const auto known = ledger_.find_storage(storage);
  if (!unit || !known) return;
  units_->assign(unit, storage, *known, ledger_.since_sequence(storage), ledger_.now());
}

void MemoryTracker::label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor) {
  claim_fake(tensor);
  const auto lock = lock_capture();
  if (!units_) return;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const SeenStorage seen = StorageCapture::get().see(storage, /*even_empty=*/true);
    if (!seen.id) return;
    if (!ledger_.find_storage(seen.id)) {
      apply(events::storage_born(origin(seen.device), seen.id, seen.size_bytes));
    }
    apply_fact(unit, fact, seen.id);
  });
  settle_units();
}

void MemoryTracker::settle_units() {
  units_->settle_if_due([this] { return was_started_ ? ledger_.peak() : Snapshot{}; });
}

void MemoryTracker::tell_units(const Event& event) {
  switch (event.kind) {
    case EventKind::StorageFreed:
      return units_->storage_freed(event.storage, ledger_.now());
    case EventKind::StorageResized:
    case EventKind::StorageRelabelled: {
      if (!units_->unit_of(event.storage)) return;
      const auto known = ledger_.find_storage(event.storage);
      if (!known) return;
      if (event.kind == EventKind::StorageRelabelled && event.since == Since::Birth) {
        return units_->storage_corrected(event.storage, known->category);
      }
      return units_->storage_changed(event.storage, known->size_bytes, known->category,
                                     ledger_.now());
    }
    default:
      return;
  }
}

Instant MemoryTracker::instant() {
  look_at_clock();
  Instant now = ledger_.now();
  now.time_ns = time_ns_;
  return now;
}

void MemoryTracker::begin_gather(UnitId unit, GatherReason reason) {
  const auto lock = lock_capture();
  if (units_) units_->begin_gather(unit, reason, instant());
}

void MemoryTracker::finish_gather(UnitId unit) {
  const auto lock = lock_capture();
  if (units_) units_->finish_gather(unit, instant());
}

void MemoryTracker::release(UnitId unit, bool keeps_post_forward_shard) {
  const auto lock = lock_capture();
  if (!units_) return;
  units_->release(unit, keeps_post_forward_shard, instant());
  settle_units();  // a program that only evaluates tells of nothing else
}

void MemoryTracker::reduce(UnitId unit) {
  const auto lock = lock_capture();
  if (units_) units_->reduce(unit);
}

std::vector<UnitReport> MemoryTracker::units() {
  const auto lock = lock_capture();
  if (!units_) return {};
  return units_->read(was_started_ ? ledger_.peak() : Snapshot{});
}

std::optional<Category> MemoryTracker::find_category(const at::Tensor& tensor) {
  const auto lock = lock_capture();
  std::optional<Category> category;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const auto known = ledger_.find_storage(StorageCapture::get().see(storage).id);
    if (known && !category) category = known->category;
  });
  return category;
}

}  // namespace tidegauge
