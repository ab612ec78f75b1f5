// SPDX-License-Identifier: BSD-3-Clause
#include "plan/device_speed.h"

#include <algorithm>
#include <array>

namespace tidegauge {
namespace {

struct Row {
  std::string_view device;  // a key of the device catalogue
  double half_tflops, single_tflops;
  double memory_gb, link_gb;  // GB/s
};

// NVLink: half of the figure of the data sheet, which adds both directions. PCIe 4.0 x16: 32 GB/s.
constexpr std::array kRows{
    // NVIDIA A100 data sheet (nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf), SXM; NVLink 600
    Row{"a100-40g", 312, 19.5, 1555, 300},
    Row{"a100-80g", 312, 19.5, 2039, 300},
    // NVIDIA H100 data sheet (nvidia.com/en-us/data-center/h100), SXM: 1,979 with sparsity; NVLink
    // 900
    Row{"h100-80g", 989.4, 66.9, 3350, 450},
    // The same chip; the memory bandwidth is that of a published run on this board
    Row{"h100-96g", 989.4, 66.9, 2400, 450},
    // NVIDIA H200 data sheet (nvidia.com/en-us/data-center/h200): an H100 with faster memory
    Row{"h200", 989.4, 66.9, 4800, 450},
    // NVIDIA Blackwell data sheet, HGX B200 (nvidia.com/en-us/data-center/hgx): 4,500 with
    // sparsity;
    // NVLink 1,800
    Row{"b200", 2250, 75, 7700, 900},
    // NVIDIA L4 data sheet: 242 with sparsity; PCIe
    Row{"l4", 121, 30.3, 300, 32},
    // NVIDIA L40S data sheet: 733 with sparsity; PCIe
    Row{"l40s", 362, 91.6, 864, 32},
    // NVIDIA A40 data sheet: 299.3 with sparsity; PCIe
    Row{"a40", 149.7, 37.4, 696, 32},
    // NVIDIA RTX A6000 data sheet: 309.7 with sparsity; PCIe
    Row{"rtx-a6000", 154.8, 38.7, 768, 32},
    // AMD Instinct MI355X brochure (amd-instinct-mi355x-gpu-brochure.pdf); seven links of 76.8
    Row{"mi355x", 2516.6, 157.3, 8000, 537.6},
};

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

DeviceSpeed DeviceSpeed::scaled(double factor) const {
  DeviceSpeed speed = *this;
  for (double* share : {&speed.matmul_share, &speed.attention_share, &speed.convolution_share,
                        &speed.memory_share}) {
    *share *= factor;
  }
  return speed;
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

}  // namespace tidegauge
