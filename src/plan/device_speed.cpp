// SPDX-License-Identifier: BSD-3-Clause
#include "plan/device_speed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

struct Row {
  std::string_view device;  // a key of the device catalogue
  double half_tflops, single_tflops;
  double memory_gb, link_gb;  // GB/s
  std::string_view source;
};

constexpr std::string_view kA100 = "NVIDIA A100 data sheet, SXM (NVLink: 600 GB/s)";

// NVLink: half of the figure of the data sheet, which adds both directions. PCIe 4.0 x16: 32 GB/s.
// Half of the flops of a data sheet that counts "with sparsity".
constexpr std::array kRows{
    Row{"a100-40g", 312, 19.5, 1555, 300, kA100},
    Row{"a100-80g", 312, 19.5, 2039, 300, kA100},
    Row{"h100-80g", 989.4, 66.9, 3350, 450, "NVIDIA H100 data sheet, SXM (1,979 TFLOPS sparse)"},
    Row{"h100-96g", 989.4, 66.9, 2400, 450,
        "NVIDIA H100 data sheet, SXM; memory bandwidth of a published run on this board"},
    Row{"h200", 989.4, 66.9, 4800, 450, "NVIDIA H200 data sheet, SXM"},
    Row{"b200", 2250, 75, 7700, 900, "NVIDIA HGX B200 data sheet (4,500 TFLOPS sparse)"},
    Row{"l4", 121, 30.3, 300, 32, "NVIDIA L4 data sheet (242 TFLOPS sparse)"},
    Row{"l40s", 362, 91.6, 864, 32, "NVIDIA L40S data sheet (733 TFLOPS sparse)"},
    Row{"a40", 149.7, 37.4, 696, 32, "NVIDIA A40 data sheet (299.3 TFLOPS sparse)"},
    Row{"rtx-a6000", 154.8, 38.7, 768, 32, "NVIDIA RTX A6000 data sheet (309.7 TFLOPS sparse)"},
    Row{"mi355x", 2516.6, 157.3, 8000, 537.6,
        "AMD Instinct MI355X brochure; seven links of 76.8 GB/s"},
};

/// What a calibration may replace.
constexpr std::array<std::pair<std::string_view, double DeviceSpeed::*>, 14> kConstants{{
    {"half_flops", &DeviceSpeed::half_flops},
    {"single_flops", &DeviceSpeed::single_flops},
    {"memory_bytes", &DeviceSpeed::memory_bytes},
    {"link_bytes", &DeviceSpeed::link_bytes},
    {"network_bytes", &DeviceSpeed::network_bytes},
    {"host_bytes", &DeviceSpeed::host_bytes},
    {"matmul_share", &DeviceSpeed::matmul_share},
    {"attention_share", &DeviceSpeed::attention_share},
    {"convolution_share", &DeviceSpeed::convolution_share},
    {"memory_share", &DeviceSpeed::memory_share},
    {"link_share", &DeviceSpeed::link_share},
    {"launch_ns", &DeviceSpeed::launch_ns},
    {"kernel_ns", &DeviceSpeed::kernel_ns},
    {"collective_ns", &DeviceSpeed::collective_ns},
}};

DeviceSpeed to_speed(const Row& row) {
  DeviceSpeed speed;
  speed.half_flops = row.half_tflops * 1e12;
  speed.single_flops = row.single_tflops * 1e12;
  speed.memory_bytes = row.memory_gb * 1e9;
  speed.link_bytes = row.link_gb * 1e9;
  return speed;
}

double share_of(const DeviceSpeed& speed, OpClass kind) {
  switch (kind) {
    case OpClass::Attention:
      return speed.attention_share;
    case OpClass::Convolution:
      return speed.convolution_share;
    default:
      return speed.matmul_share;
  }
}

/// A ring: each rank sends the parts of all others once, or twice to reduce and to gather.
double collective_time_ns(const DeviceSpeed& speed, const OpCost& cost) {
  const auto ranks = static_cast<double>(std::max<int64_t>(cost.group_size, 1));
  const bool is_ring = cost.collective != CollectiveKind::Send;
  double bytes = static_cast<double>(cost.payload_bytes);
  if (is_ring) bytes *= (ranks - 1) / ranks;
  if (cost.collective == CollectiveKind::AllReduce) bytes *= 2;
  const bool is_in_node = cost.group_size <= speed.devices_per_node;
  const double rate = (is_in_node ? speed.link_bytes : speed.network_bytes) * speed.link_share;
  return speed.collective_ns + bytes / rate * 1e9;
}

}  // namespace

void DeviceSpeed::set(std::string_view name, double value) {
  const auto* const constant = std::ranges::find(
      kConstants, name, &std::pair<std::string_view, double DeviceSpeed::*>::first);
  if (constant == kConstants.end()) {
    throw UsageError("a device has no constant '" + std::string(name) +
                     "' (expected e.g. matmul_share)");
  }
  if (!std::isfinite(value) || value <= 0) {
    throw UsageError("invalid constant " + std::string(name) + " " + std::to_string(value) +
                     " (expected a positive number)");
  }
  this->*constant->second = value;
}

std::vector<std::pair<std::string_view, double>> DeviceSpeed::constants() const {
  std::vector<std::pair<std::string_view, double>> all;
  all.reserve(kConstants.size());
  for (const auto& [name, member] : kConstants) all.emplace_back(name, this->*member);
  return all;
}

double DeviceSpeed::peak_flops(std::string_view dtype) const {
  if (dtype == "bfloat16" || dtype == "float16") return half_flops;
  if (dtype.starts_with("float8") || dtype == "int8") return 2 * half_flops;
  return dtype == "float64" ? single_flops / 2 : single_flops;
}

double DeviceSpeed::time_ns(const OpCost& cost) const {
  const auto bytes = static_cast<double>(cost.read_bytes) + static_cast<double>(cost.written_bytes);
  switch (cost.kind) {
    case OpClass::Free:
      return 0;
    case OpClass::Collective:
      return collective_time_ns(*this, cost);
    case OpClass::Transfer:
      return std::max(kernel_ns, bytes / 2 / host_bytes * 1e9);
    default:
      break;
  }
  const auto flops = static_cast<double>(cost.flops - cost.masked_flops);
  const double compute = flops / (peak_flops(cost.dtype) * share_of(*this, cost.kind));
  const double transfer = bytes / (memory_bytes * memory_share);
  return std::max(kernel_ns, std::max(compute, transfer) * 1e9);
}

const DeviceSpeed* find_speed(std::string_view device) {
  static const auto speeds = [] {
    std::array<DeviceSpeed, kRows.size()> all;
    std::ranges::transform(kRows, all.begin(), &to_speed);
    return all;
  }();
  const auto row = std::ranges::find(kRows, device, &Row::device);
  return row == kRows.end() ? nullptr : &speeds[static_cast<size_t>(row - kRows.begin())];
}

std::string_view find_speed_source(std::string_view device) {
  const auto* const row = std::ranges::find(kRows, device, &Row::device);
  return row == kRows.end() ? std::string_view{} : row->source;
}

}  // namespace tidegauge
