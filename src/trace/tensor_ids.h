// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "core/events/event_sink.h"
#include "trace/writer.h"

namespace tidegauge::trace {

/// Numbers the pairs (dtype, shape). Most runs have about a thousand pairs. After a million, new
/// pairs get 0.
class TensorIds {
 public:
  /// Returns the number of the pair. Adds a new pair to `names`.
  uint32_t intern(const TensorFacts& facts, Names& names) {
    key_.assign(facts.dtype);
    key_.append(reinterpret_cast<const char*>(facts.shape.data()), facts.shape.size_bytes());
    const auto found = ids_.find(key_);
    if (found != ids_.end()) return found->second;
    if (ids_.size() == kMaxTensors) return 0;
    const auto id = static_cast<uint32_t>(ids_.size() + 1);
    names.tensors.push_back({id, std::string(facts.dtype), shape_text(facts.shape)});
    ids_.emplace(key_, id);
    return id;
  }

 private:
  static constexpr size_t kMaxTensors = 1'000'000;
  std::unordered_map<std::string, uint32_t> ids_;
  std::string key_;  // scratch space
};

}  // namespace tidegauge::trace
