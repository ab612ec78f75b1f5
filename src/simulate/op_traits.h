// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulate/checks.h"
#include "simulate/constant_rule.h"
#include "simulate/corrections.h"
#include "simulate/fused_ops.h"
#include "simulate/kernel_memory.h"

namespace tidegauge::simulation {

/// A backend that has no kernels, so that it runs the composite kernel of every op that has one.
inline constexpr c10::DispatchKey kBackendOfComposites = c10::DispatchKey::VE;

/// How an op is simulated.
enum class OpKind : uint8_t {
  Plain,       ///< its meta kernel gives the results
  Composite,   ///< calls other ops, each of which is simulated
  Decomposed,  ///< the same, by a meta kernel that is a decomposition and reads the device
  Collective,  ///< a c10d op: returns its arguments
  Wait,        ///< waits for a collective: returns its argument
  Choice,      ///< asks which attention kernel the claimed device would use
  Item,        ///< reads a value
  Equal,       ///< compares values
  Dynamic,     ///< the shape of its result depends on values
  Indexed,     ///< takes masks as indices
  Fresh,       ///< lifts the real tensor that torch.tensor made
  Pin,
  IsPinned,
  RecordStream,
};

/// Facts about an op that the simulator needs, read once from its schema and kernels.
struct OpTraits {
  static OpTraits& find(const c10::OperatorHandle& op);
  /// Forgets all traits and sets which ops are decomposed, by name with overload. No op may be
  /// running.
  static void reset(const std::vector<std::string>& decomposed);
  /// The traits of all ops that ran since the last reset.
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
  uint64_t written = 0;  ///< bit i: the op writes to argument i
  bool is_view = false;
  bool is_cacheable = true;
  bool changes_geometry = false;  ///< changes sizes and strides of its argument, not its contents
  bool ignores_doubles = false;   ///< no result's shape depends on a floating-point argument
  bool is_random = false;
  /// For a random op without a generator argument: its overload that has one.
  std::optional<c10::OperatorHandle> with_generator;
  bool makes_values = false;   ///< its results are known even if its inputs are not (zeros_like)
  bool mixes_devices = false;  ///< accepts tensors on different devices
  bool is_collective = false;  ///< of torch.distributed._functional_collectives
  bool is_choice = false;      ///< returns the indices of the largest values
  ConstantRule constant_rule = ConstantRule::None;
  Check check = nullptr;
  Correction correction = nullptr;
  // On a claimed CUDA device:
  FusedOp fused_op = nullptr;            ///< makes the results
  KernelMemory kernel_memory = nullptr;  ///< adds the requests for other memory

  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> hits{0};  ///< calls answered from the cache
};

}  // namespace tidegauge::simulation
