// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tidegauge/export.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// Parameters that a program shards, gathers and releases as one. What it tells goes to every
/// MemTracker that exists, entered or not; one that is made later must be told of the shards again.
///
///     tidegauge::ShardedUnit unit("layers.0");
///     unit.label(tidegauge::UnitFact::Shard, shard);
///     ...
///     unit.begin_gather(tidegauge::GatherReason::Forward);
///     {
///       const tidegauge::UnitBirths births(unit, tidegauge::UnitFact::GatherBuffer);
///       all_gather(buffer = at::empty(...), shard);  // what is made here is All Gather
///     }
///     {
///       const tidegauge::UnitBirths births(unit, tidegauge::UnitFact::Unsharded);
///       weight = buffer.view(sizes).clone();
///     }
///     unit.finish_gather();
///     ... forward; then weight and buffer go ...
///     unit.release();
///
/// The labels hold in every snapshot, in MemTracker's categories; `MemTracker::units` has them by
/// unit, in fine ones. Thread-safe; holds no tensor.
class TIDEGAUGE_API ShardedUnit {
 public:
  explicit ShardedUnit(std::string name);

  /// Says what the storages of a tensor are to the unit. Nothing for an undefined tensor.
  void label(UnitFact fact, const at::Tensor& tensor) const;
  /// Nothing if the unit is gathered already.
  void begin_gather(GatherReason reason) const;
  void finish_gather() const;
  void release(bool keeps_post_forward_shard = false) const;
  /// One reduction of gradients is done.
  void reduce() const;

  const std::string& name() const { return name_; }
  /// Not 0, and of no other unit of the process.
  uint32_t id() const { return id_; }

 private:
  uint32_t id_;
  std::string name_;
};

/// What this thread makes, as long as it lives, is `fact` to the unit, except in an optimizer step.
/// Nests; the innermost holds.
class TIDEGAUGE_API UnitBirths {
 public:
  UnitBirths(const ShardedUnit& unit, UnitFact fact);
  ~UnitBirths();
  UnitBirths(const UnitBirths&) = delete;
  UnitBirths& operator=(const UnitBirths&) = delete;
};

}  // namespace tidegauge
