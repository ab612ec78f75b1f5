// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "plan/op_cost.h"

namespace tidegauge {

/// What a device can do per second, and which part of that programs get.
///
/// Peaks are those of data sheets, dense: half the figures "with sparsity". The efficiencies are
/// assumptions, which a calibration replaces (`set`).
struct DeviceSpeed {
  double half_flops = 0;        ///< products of float16
  double bfloat_flops = 0;      ///< products of bfloat16
  double single_flops = 0;      ///< products of float32, which torch does not compute in TF32
  double memory_bytes = 0;      ///< of the device's memory
  double link_bytes = 0;        ///< from one device to others of its node, in one direction
  double network_bytes = 50e9;  ///< to other nodes: one adapter of 400 Gbit/s for each device
  double host_bytes = 25e9;     ///< between host and device, pinned: PCIe 4.0 x16
  int devices_per_node = 8;
  int multiprocessors = 0;

  // What products of the best shape reach of the peak (plan/product_shape.h), on an A100.
  double matmul_share = 0.775;
  double attention_share = 0.5;
  double convolution_share = 0.5;
  double memory_share = 0.8;
  double link_share = 0.8;
  double launch_ns = 5000;       ///< of the host, for each kernel
  double kernel_ns = 2000;       ///< the least time of a kernel
  double collective_ns = 20000;  ///< the least time of a collective

  /// Replaces the member with this name. Throws UsageError for an unknown name, and if the value is
  /// not a positive number.
  void set(std::string_view name, double value);
  /// The members that `set` knows, by name.
  std::vector<std::pair<std::string_view, double>> constants() const;
  double peak_flops(std::string_view dtype) const;
  /// The time that the device needs for an op, without its launch. 0 for a free op.
  double time_ns(const OpCost& cost) const;
};

/// The speed of a device of the catalogue (tidegauge/fit.h). Null if we know none: we have no data
/// sheet of it.
const DeviceSpeed* find_speed(std::string_view device);
/// Where the peaks of this device are from; empty if we know none.
std::string_view find_speed_source(std::string_view device);

}  // namespace tidegauge
