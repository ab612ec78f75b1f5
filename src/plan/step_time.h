// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/events/ids.h"
#include "core/events/op_call.h"
#include "plan/device_speed.h"
#include "plan/op_cost.h"

namespace tidegauge {

/// How long a step takes on a device, and what the device does meanwhile.
///
///   host     |a|b|c|d|e|                   launches one kernel after another
///   compute    |-a-|-b---|......|-d---|    stream 0; waits for g: exposed communication
///   gather           |-----g----|          a stream of its own: g is hidden behind b in part
///
/// An op starts when the host has launched it and its stream is free. A stream that waits for an
/// event is not free before the event. A collective runs on the stream that calls it; on stream 0
/// all of it is exposed.
struct StepTime {
  double total_ns = 0;
  // Busy time of stream 0, without collectives.
  double forward_ns = 0;
  double backward_ns = 0;  ///< without recompute
  double recompute_ns = 0;
  double optimizer_ns = 0;
  double communication_ns = 0;  ///< of all collectives, hidden or not
  double exposed_ns = 0;        ///< stream 0 waits for other streams, or runs a collective
  double idle_ns = 0;           ///< stream 0 has nothing to do until the host launches more
  int64_t flops = 0;            ///< with those of recompute
  int64_t recompute_flops = 0;
  /// What the products of forward and backward would take at the peaks of their dtypes.
  double ideal_ns = 0;
};

/// The run of an op on its stream.
struct OpSlice {
  uint32_t call = 0;  ///< number of the OpCall
  uint16_t stream = 0;
  uint8_t facts = 0;  ///< of its entry
  ModuleId module{};  ///< the innermost that ran; 0: none
  double begin_ns = 0;
  double end_ns = 0;
};

/// `costs`: of the calls that the entries name by number. Ops on the host are left out, if any op
/// runs on the device; else all run on the device. `slices`: receives each op that takes time, in
/// the order of the entries.
StepTime find_step_time(std::span<const OpEntry> entries, const std::vector<OpCost>& costs,
                        const DeviceSpeed& speed, std::vector<OpSlice>* slices = nullptr);

}  // namespace tidegauge
