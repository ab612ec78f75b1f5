// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/util/typeid.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/storages/tensor_facts.h"
#include "core/events/event.h"
#include "core/ledger/post_mortem.h"

namespace tidegauge {

class Ledger;

/// The module, op, stack, dtype and shape of each live storage of a tracker. (The Ledger has the
/// bytes.)
///
/// This is read only when an allocation fails, so writing must be cheap: the set is a log of
/// births. A birth is appended and a free costs nothing. When the log has doubled, the births of
/// freed storages are dropped.
class LiveSet {
 public:
  /// True if the caller must pass the event's storage to `add` and the event to `set_module`.
  static bool wants(const Event& event) {
    return event.kind == EventKind::StorageBorn || event.kind == EventKind::StorageClaimed ||
           (event.kind == EventKind::StorageRelabelled && event.module);
  }
  /// `tensor`: the first tensor that was observed on the storage; may be null.
  void add(StorageId storage, OpId op, const c10::TensorImpl* tensor, StackId stack) {
    if (!has_room()) grow();
    add_in_room(storage, op, tensor, stack);
  }
  /// The same without growing. Requires `has_room`.
  void add_in_room(StorageId storage, OpId op, const c10::TensorImpl* tensor, StackId stack) {
    if (!has_room()) __builtin_unreachable();
    Birth& birth = births_.emplace_back();
    birth.storage = storage;
    birth.op = op;
    birth.stack = stack;
    if (has_plain_sizes(tensor)) [[likely]]
      set_shape(birth, *tensor);
  }
  /// Sets the module of the oldest entry that has none: call it once for each `add`, in the same
  /// order. `running`: the innermost module that ran at the event.
  void set_module(const Event& event, ModuleId running) {
    births_[placed_++].module = event.kind == EventKind::StorageBorn ? running : event.module;
  }
  bool has_room() const { return births_.size() != births_.capacity(); }
  [[gnu::noinline, gnu::cold]] void grow() { births_.reserve(births_.capacity() * 2 + 64); }
  /// True if the caller must call `drop_dead` before the next `add`.
  bool is_full() const { return births_.size() >= capacity_; }
  /// True if `drop_dead` is worth its cost at a moment when the caller has applied all events
  /// anyway.
  bool is_half_full() const { return births_.size() >= capacity_ / 2; }
  /// Drops the entries of freed storages. `ledger` must have applied all births, and every entry
  /// must have its module.
  void drop_dead(const Ledger& ledger);

  struct Names {
    std::function<std::string(ModuleId)> module;
    std::function<std::string(OpId)> op;
    std::function<std::string(StackId)> stack;
  };
  /// Groups the storages that are alive in `ledger`, largest group first.
  std::vector<LiveGroup> groups(const Ledger& ledger, const Names& names) const;

  size_t footprint_bytes() const { return births_.capacity() * sizeof(Birth); }

 private:
  static constexpr size_t kInlineSizes = 5;
  static constexpr uint8_t kNoTensor = UINT8_MAX;
  static constexpr uint8_t kLongShape = UINT8_MAX - 1;
  struct Birth {
    StorageId storage;
    ModuleId module;
    OpId op;
    StackId stack;
    caffe2::TypeMeta dtype;
    uint8_t dimensions = kNoTensor;  // kLongShape: the sizes are in long_shapes_
    std::array<uint32_t, kInlineSizes> sizes{};
  };
  void set_shape(Birth& birth, const c10::TensorImpl& tensor) {
    const c10::IntArrayRef sizes = tensor.sizes();
    birth.dtype = tensor.dtype();
    birth.dimensions = static_cast<uint8_t>(sizes.size());
    int64_t all_bits = 0;
    for (size_t i = 0; i < sizes.size() && i < kInlineSizes; ++i) {
      birth.sizes[i] = static_cast<uint32_t>(sizes[i]);
      all_bits |= sizes[i];
    }
    if (sizes.size() > kInlineSizes || all_bits > UINT32_MAX) set_long_shape(birth, sizes);
  }
  [[gnu::noinline, gnu::cold]] void set_long_shape(Birth& birth, c10::IntArrayRef sizes);
  std::vector<int64_t> shape_of(const Birth& birth) const;

  static constexpr size_t kMinCapacity = 256;
  std::vector<Birth> births_;  // a later entry of the same storage adds to the earlier one
  size_t placed_ = 0;          // the first `placed_` entries have their modules
  size_t capacity_ = kMinCapacity;
  std::unordered_map<StorageId, std::vector<int64_t>> long_shapes_;
};

}  // namespace tidegauge
