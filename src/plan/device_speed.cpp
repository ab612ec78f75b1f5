// SPDX-License-Identifier: BSD-3-Clause
#include "plan/device_speed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "plan/product_shape.h"
#include "tidegauge/errors.h"
#include "tidegauge/fit.h"

namespace tidegauge {
namespace {

struct Row {
  std::string_view device;  // a key of the device catalogue
  double half_tflops, single_tflops;
  double memory_gb, link_gb;  // GB/s
  std::string_view source;
  bool has_bfloat = true;
  double matmul_share = DeviceSpeed{}.matmul_share;
};

/// Products of bfloat16 then have the speed of float32: the hardware has none of them.
constexpr bool kHasNoBfloat = false;

constexpr std::string_view kA100 = "NVIDIA A100 data sheet, SXM (NVLink: 600 GB/s)";
constexpr std::string_view kV100 = "NVIDIA V100 data sheet, SXM2 (NVLink: 300 GB/s)";

// NVLink: half of the figure of the data sheet, which adds both directions. PCIe x16 in one
// direction: 16 GB/s (3.0), 32 GB/s (4.0), 64 GB/s (5.0). Half of the flops of a data sheet that
// counts "with sparsity". GeForce: products that add up in float32, as torch's do; the others are
// twice as fast. The addresses are those of the documents.
constexpr std::array kRows{
    // www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/
    // nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf
    Row{"a100-40g", 312, 19.5, 1555, 300, kA100},
    Row{"a100-80g", 312, 19.5, 2039, 300, kA100},
    // resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet
    Row{"h100-80g", 989.4, 66.9, 3350, 450, "NVIDIA H100 data sheet, SXM (1,979 TFLOPS sparse)"},
    Row{"h100-96g", 989.4, 66.9, 2400, 450,
        "NVIDIA H100 data sheet, SXM; memory bandwidth of a published run on this board"},
    // www.pny.com/file%20library/company/support/product%20brochures/
    // nvidia%20data%20center%20gpus/english/h100-nvl-datasheet.pdf
    // NVLink joins pairs; more than two go through PCIe 5.0.
    Row{"h100-nvl", 835.5, 60, 3938, 64, "NVIDIA H100 NVL data sheet (1,671 TFLOPS sparse)"},
    // resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip
    Row{"gh200", 989.4, 66.9, 4000, 450, "NVIDIA GH200 data sheet (1,979 TFLOPS sparse)"},
    Row{"h200", 989.4, 66.9, 4800, 450, "NVIDIA H200 data sheet, SXM"},
    // Products reach half of the peak: the median of 432 that SimuMax measured.
    Row{"b200", 2250, 75, 7700, 900, "NVIDIA HGX B200 data sheet (4,500 TFLOPS sparse)", true,
        0.51},
    // Like the B200 for products in half precision: HGX B300 in NVIDIA's Blackwell Ultra data
    // sheet.
    Row{"b300", 2250, 75, 7700, 900, "NVIDIA HGX B300 data sheet, with the efficiency of a B200",
        true, 0.51},
    // github.com/volcengine/verl has the peaks of L20, L40 and H20 (utils/flops_counter.py).
    Row{"h20", 148, 44, 4000, 450, "NVIDIA H20 data sheet, SXM"},
    Row{"l20", 119.5, 59.8, 864, 32, "NVIDIA L20 data sheet"},
    Row{"l40", 181, 90.5, 864, 32, "NVIDIA L40 data sheet (362 TFLOPS sparse)"},
    // www.nvidia.com/content/dam/en-zz/Solutions/design-visualization/rtx-6000/
    // proviz-rtx-6000-ada-datasheet.pdf
    Row{"rtx-6000-ada", 362, 91.1, 960, 32, "NVIDIA RTX 6000 Ada data sheet (724 TFLOPS sparse)"},
    // www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf
    Row{"a10", 125, 31.2, 600, 32, "NVIDIA A10 data sheet (250 TFLOPS sparse)"},
    // resources.nvidia.com/en-us-l4/l4-datasheet, resources.nvidia.com/en-us-l40s/
    // l40s-datasheet-28413
    Row{"l4", 121, 30.3, 300, 32, "NVIDIA L4 data sheet (242 TFLOPS sparse)"},
    Row{"l40s", 362, 91.6, 864, 32, "NVIDIA L40S data sheet (733 TFLOPS sparse)"},
    Row{"a40", 149.7, 37.4, 696, 32, "NVIDIA A40 data sheet (299.3 TFLOPS sparse)"},
    // d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf
    Row{"a10g", 70, 35, 600, 32, "NVIDIA A10G data sheet of AWS (140 TFLOPS sparse)"},
    Row{"rtx-a6000", 154.8, 38.7, 768, 32, "NVIDIA RTX A6000 data sheet (309.7 TFLOPS sparse)"},
    // www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf
    Row{"rtx3090", 71, 35.6, 936, 32, "NVIDIA GA102 white paper (RTX 3090)"},
    // images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf
    Row{"rtx4090", 165.2, 82.6, 1008, 32, "NVIDIA Ada white paper (RTX 4090)"},
    // images.nvidia.com/aem-dam/Solutions/geforce/blackwell/
    // nvidia-rtx-blackwell-gpu-architecture.pdf
    Row{"rtx5090", 209.5, 104.8, 1792, 64, "NVIDIA RTX Blackwell white paper (RTX 5090)"},
    // www.nvidia.com/content/dam/en-zz/Solutions/design-visualization/quadro-product-literature/
    // NVIDIA-RTX-Blackwell-PRO-GPU-Architecture-v1.0.pdf
    Row{"rtx-pro-6000", 503.8, 126, 1792, 64,
        "NVIDIA RTX Blackwell PRO white paper (RTX PRO 6000 Workstation Edition)"},
    // images.nvidia.com/content/technologies/volta/pdf/
    // volta-v100-datasheet-update-us-1165301-r5.pdf
    Row{"v100-16g", 125, 15.7, 900, 150, kV100, kHasNoBfloat},
    Row{"v100-32g", 125, 15.7, 900, 150, kV100, kHasNoBfloat},
    // www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/
    // t4-tensor-core-datasheet-951643.pdf
    Row{"t4", 65, 8.1, 320, 16, "NVIDIA T4 data sheet", kHasNoBfloat},
    // www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/data-sheets/
    // amd-instinct-mi300x-data-sheet.pdf and ../product-briefs/instinct-mi325x-datasheet.pdf
    Row{"mi300x", 1307.4, 163.4, 5300, 448,
        "AMD Instinct MI300X data sheet; seven links of 64 GB/s"},
    Row{"mi325x", 1307.4, 163.4, 6000, 448,
        "AMD Instinct MI325X data sheet; seven links of 64 GB/s"},
    // www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/product-briefs/
    // amd-instinct-mi355x-gpu-brochure.pdf
    Row{"mi355x", 2516.6, 157.3, 8000, 537.6,
        "AMD Instinct MI355X brochure; seven links of 76.8 GB/s"},
};

/// What a calibration may replace.
constexpr std::array<std::pair<std::string_view, double DeviceSpeed::*>, 15> kConstants{{
    {"half_flops", &DeviceSpeed::half_flops},
    {"bfloat_flops", &DeviceSpeed::bfloat_flops},
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
  speed.bfloat_flops = row.has_bfloat ? speed.half_flops : speed.single_flops;
  speed.matmul_share = row.matmul_share;
  const DeviceModel* device = find_device(row.device);
  if (device != nullptr) speed.multiprocessors = device->multiprocessors;
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

/// What is left of the speed of the best products.
double shape_share(const DeviceSpeed& speed, const OpCost& cost, double peak) {
  if (cost.kind != OpClass::Matmul || speed.multiprocessors == 0) return 1;
  const bool has_tensor_cores = peak > speed.single_flops;
  return has_tensor_cores ? find_product_efficiency(cost, speed.multiprocessors)
                          : kTypicalEfficiency;
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
  if (dtype == "bfloat16") return bfloat_flops;
  if (dtype == "float16") return half_flops;
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
  const double peak = peak_flops(cost.dtype);
  const double compute =
      flops / (peak * share_of(*this, cost.kind) * shape_share(*this, cost, peak));
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
