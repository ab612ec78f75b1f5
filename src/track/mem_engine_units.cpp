// SPDX-License-Identifier: BSD-3-Clause
//
// The part of MemEngine for sharded parameters.
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"
#include "track/mem_engine.h"

namespace tidegauge {

void MemEngine::mark_module(ModuleId module, ModuleState state) {
  const auto lock = StorageRegistry::lock();
  if (!events_.apply_all().has_statistics(module)) return;
  events_.set_moment();
  events_.change_modules();
  events_.apply(events::module_mark(events_.origin(), module, state));
}

void MemEngine::add_unit(UnitId unit, const std::string& name) {
  const auto lock = StorageRegistry::lock();
  ShardedUnits* units = events_.units();
  if (units == nullptr) {
    units = &events_.start_units();
    update_state();
  }
  EventSink* sink = events_.sink();
  if (units->add(unit, name) && sink != nullptr) sink->name_unit(unit, name);
}

void MemEngine::apply_fact(UnitId unit, UnitFact fact, StorageId storage) {
  const auto known = events_.apply_all().find_storage(storage);
  if (!known) return;
  const auto label = ShardedUnits::decide(fact, known->category);
  // A shard that is gathered without a copy keeps its label and its unit.
  if (label || fact != UnitFact::GatherBuffer) own_storage(unit, storage);
  if (label)
    events_.apply(events::storage_relabelled(events_.origin(), storage, label->role, label->since));
}

void MemEngine::own_storage(UnitId unit, StorageId storage) {
  events_.apply(UnitEvent{.time_ns = events_.apply_all().now().time_ns,
                          .storage = storage,
                          .unit = unit,
                          .kind = UnitEventKind::StorageOwned});
}

void MemEngine::label_unit(UnitId unit, UnitFact fact, const at::Tensor& tensor) {
  register_fake(tensor);
  const auto lock = StorageRegistry::lock();
  if (events_.units() == nullptr) return;
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    const ObservedStorage observed = StorageRegistry::get().observe(storage, /*even_empty=*/true);
    if (!observed.id) return;
    if (!events_.apply_all().find_storage(observed.id)) {
      if (is_of_another_mode(storage)) return;
      events_.apply(
          events::storage_born(events_.origin(observed.device), observed.id, observed.size_bytes));
    }
    apply_fact(unit, fact, observed.id);
  });
  events_.units()->settle_if_due([this] { return read_peak(); });
}

void MemEngine::change_unit(UnitId unit, UnitEventKind kind, GatherReason reason) {
  const auto lock = StorageRegistry::lock();
  if (events_.units() == nullptr) return;
  events_.set_moment();
  events_.apply(
      UnitEvent{.time_ns = events_.time_ns(), .unit = unit, .kind = kind, .reason = reason});
  // Here too, because a program that only evaluates never calls `label_unit`.
  events_.units()->settle_if_due([this] { return read_peak(); });
}

void MemEngine::begin_gather(UnitId unit, GatherReason reason) {
  change_unit(unit, UnitEventKind::GatherBegun, reason);
}

void MemEngine::finish_gather(UnitId unit) { change_unit(unit, UnitEventKind::GatherFinished); }

void MemEngine::resume_gather(UnitId unit, bool is_finished) {
  begin_gather(unit, GatherReason::User);
  if (is_finished) finish_gather(unit);
}

void MemEngine::release(UnitId unit, bool keeps_post_forward_shard) {
  change_unit(unit, keeps_post_forward_shard ? UnitEventKind::ReleasedToPostForwardShard
                                             : UnitEventKind::Released);
}

void MemEngine::reduce(UnitId unit) { change_unit(unit, UnitEventKind::Reduced); }

std::vector<UnitReport> MemEngine::units() {
  const auto lock = StorageRegistry::lock();
  const ShardedUnits* units = events_.units();
  return units != nullptr ? units->read(read_peak()) : std::vector<UnitReport>();
}

}  // namespace tidegauge
