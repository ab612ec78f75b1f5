// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulate/checks.h"
#include "simulate/corrections.h"

namespace tidegauge::simulation {

/// How an op is simulated.
enum class OpKind : uint8_t {
  Plain,       ///< its meta kernel tells the results
  Composite,   ///< made of other ops, each of which is simulated
  Decomposed,  ///< likewise, where the meta kernel asks for the device (a decomposition)
  Collective,  ///< of c10d: hands back what it was given
  Wait,        ///< for a collective: hands back its argument
  Choice,      ///< asks which kernel the claimed device would take
  Item,        ///< reads a value
  Equal,       ///< compares values
  Dynamic,     ///< the shape of its result depends on values
  Indexed,     ///< takes masks as indices
  Fresh,       ///< lifts the real tensor that torch.tensor has made
  Pin,
  IsPinned,
  RecordStream,
};

/// What the schema and the kernels of an op say, read once.
struct OpTraits {
  static OpTraits& find(const c10::OperatorHandle& op);
  /// Ops that are decomposed, by name with overload; what was read before is forgotten. Not while
  /// ops run.
  static void reset(const std::vector<std::string>& decomposed);
  /// All that were come across since.
  static std::vector<const OpTraits*> all();

  std::string name;  ///< "aten::add.Tensor"
  OpKind kind = OpKind::Plain;
  uint32_t id = 0;
  int argument_count = 0;
  int result_count = 0;
  int device_argument = -1;
  int dtype_argument = -1;
  int pin_argument = -1;
  int generator_argument = -1;
  uint64_t written = 0;  ///< arguments, by position, that it writes to
  bool is_view = false;
  bool is_cacheable = true;
  bool ignores_doubles = false;  ///< no result's shape depends on a floating-point argument
  bool is_random = false;
  /// Of a random op that takes no generator: the same op that does.
  std::optional<c10::OperatorHandle> with_generator;
  bool makes_values = false;  ///< its results are known even if its tensors are not (zeros_like)
  bool mixes_devices = false;
  Check check = nullptr;
  Correction correction = nullptr;

  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> hits{0};  ///< of them, those that the cache has answered
};

}  // namespace tidegauge::simulation
