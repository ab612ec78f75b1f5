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

/// What is known of each live storage of a tracker beside its bytes, which the Ledger has: who made
/// it, where and as what. Nobody asks before memory runs out, so it is a log of births, from which
/// those of dead storages are dropped when it has doubled: a birth is appended, a free costs
/// nothing.
class LiveSet {
 public:
  /// Whether it is to be told of the event.
  static bool wants(const Event& event) {
    return event.kind == EventKind::StorageBorn || event.kind == EventKind::StorageClaimed ||
           (event.kind == EventKind::StorageRelabelled && event.module);
  }
  /// `tensor`: the first one seen, may be null.
  void add(StorageId storage, OpId op, const c10::TensorImpl* tensor, StackId stack) {
    if (births_.size() == births_.capacity()) grow();
    if (births_.size() == births_.capacity()) __builtin_unreachable();
    Birth& birth = births_.emplace_back();
    birth.storage = storage;
    birth.op = op;
    birth.stack = stack;
    if (has_plain_sizes(tensor)) [[likely]]
      set_shape(birth, *tensor);
  }
  /// The module of what was added, told later, in the same order. `running`: the innermost one at
  /// that event.
  void set_module(const Event& event, ModuleId running) {
    births_[placed_++].module = event.kind == EventKind::StorageBorn ? running : event.module;
  }
  /// Then `drop_dead` is due.
  bool is_full() const { return births_.size() >= capacity_; }
  /// Then it may as well be done, if this is a good moment.
  bool is_half_full() const { return births_.size() >= capacity_ / 2; }
  /// The Ledger knows of all births, and all have their modules.
  void drop_dead(const Ledger& ledger);

  struct Names {
    std::function<std::string(ModuleId)> module;
    std::function<std::string(OpId)> op;
    std::function<std::string(StackId)> stack;
  };
  /// All that the Ledger knows to be alive, the largest first.
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
    uint8_t dimensions = kNoTensor;  // kLongShape: its sizes are apart
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
  [[gnu::noinline, gnu::cold]] void grow() { births_.reserve(births_.capacity() * 2 + 64); }
  [[gnu::noinline, gnu::cold]] void set_long_shape(Birth& birth, c10::IntArrayRef sizes);
  std::vector<int64_t> shape_of(const Birth& birth) const;

  static constexpr size_t kMinCapacity = 256;
  std::vector<Birth> births_;  // a claim, or an owner, adds to the birth before it
  size_t placed_ = 0;          // of them have their modules
  size_t capacity_ = kMinCapacity;
  std::unordered_map<StorageId, std::vector<int64_t>> long_shapes_;
};

}  // namespace tidegauge
