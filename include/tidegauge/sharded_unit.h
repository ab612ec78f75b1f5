// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tidegauge/export.h"
#include "tidegauge/unit_facts.h"

namespace tidegauge {

/// Parameters that a program shards, gathers and releases together. Its calls reach every existing
/// MemTracker, entered or not. For a tracker made later, label the shards again.
///
///     tidegauge::ShardedUnit unit("layers.0");
///     unit.label(tidegauge::UnitFact::Shard, shard);
///     ...
///     unit.begin_gather(tidegauge::GatherReason::Forward);
///     {
///       const tidegauge::UnitBirths births(unit, tidegauge::UnitFact::GatherBuffer);
///       all_gather(buffer = at::empty(...), shard);  // tensors made here are All Gather
///     }
///     {
///       const tidegauge::UnitBirths births(unit, tidegauge::UnitFact::Unsharded);
///       weight = buffer.view(sizes).clone();
///     }
///     unit.finish_gather();
///     ... forward; then free weight and buffer ...
///     unit.release();
///
/// Every snapshot uses the labels, translated to MemTracker's categories; `MemTracker::units` has
/// them per unit in fine categories. Thread-safe. Holds no tensor.
class TIDEGAUGE_API ShardedUnit {
 public:
  explicit ShardedUnit(std::string name);

  /// States the role of a tensor's storages in the unit. Ignores an undefined tensor.
  void label(UnitFact fact, const at::Tensor& tensor) const;
  /// No effect if the unit is already gathered.
  void begin_gather(GatherReason reason) const;
  void finish_gather() const;
  void release(bool keeps_post_forward_shard = false) const;
  /// Counts one finished reduction of gradients.
  void reduce() const;

  const std::string& name() const { return name_; }
  /// Unique in the process; never 0.
  uint32_t id() const { return id_; }

 private:
  uint32_t id_;
  std::string name_;
};

/// While it lives, the storages that this thread makes have the role `fact` in the unit, except in
/// an optimizer step. Nests; the innermost applies.
class TIDEGAUGE_API UnitBirths {
 public:
  UnitBirths(const ShardedUnit& unit, UnitFact fact);
  ~UnitBirths();
  UnitBirths(const UnitBirths&) = delete;
  UnitBirths& operator=(const UnitBirths&) = delete;
};

}  // namespace tidegauge
