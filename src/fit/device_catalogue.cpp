// SPDX-License-Identifier: BSD-3-Clause
// The devices that tidegauge knows. To add one, add a row to kRows, anywhere, with its source.
#include <algorithm>
#include <array>
#include <cctype>

#include "tidegauge/fit.h"

namespace tidegauge {
namespace {

struct Row {
  const char* key;
  const char* name;
  int64_t memory_mib;
  int compute;
  int compute_minor;
  int multiprocessors;
};

// Memory: `total_memory` of torch.cuda.get_device_properties, which torch's out-of-memory messages
// print as "total capacity". It is less than the advertised memory, because the driver reserves
// some, and differs by some MiB between boards and drivers; users can pass --device-memory for
// their own. Compute: major and minor compute capability, https://developer.nvidia.com/cuda-gpus;
// then the multiprocessors, from NVIDIA's data sheets. A row without a link was copied from the
// total_memory of a run and was not measured again.
constexpr std::array kRows{
    // 14.58 GiB: github.com/mbzuai-oryx/GeoPixel/issues/5; other drivers leave 14.56 to 14.76 GiB
    Row{"t4", "NVIDIA T4", 14931, 7, 5, 40},
    Row{"v100-16g", "NVIDIA V100 16 GB", 16151, 7, 0, 80},        // 15.77 GiB
    Row{"a10g", "NVIDIA A10G", 22516, 8, 6, 80},                  // 21.99 GiB
    Row{"l4", "NVIDIA L4", 22478, 8, 9, 58},                      // 21.95 GiB
    Row{"rtx4090", "NVIDIA GeForce RTX 4090", 24217, 8, 9, 128},  // 23.65 GiB
    Row{"rtx3090", "NVIDIA GeForce RTX 3090", 24257, 8, 6, 82},   // 23.69 GiB
    Row{"v100-32g", "NVIDIA V100 32 GB", 32501, 7, 0, 80},        // 31.74 GiB
    Row{"a100-40g", "NVIDIA A100 40 GB", 40326, 8, 0, 108},       // 39.38 GiB
    Row{"l40s", "NVIDIA L40S", 45589, 8, 9, 142},                 // 44.52 GiB
    Row{"rtx-a6000", "NVIDIA RTX A6000", 48567, 8, 6, 84},        // 47.43 GiB
    Row{"h100-80g", "NVIDIA H100 80 GB", 81004, 9, 0, 132},       // 79.11 GiB
    Row{"a100-80g", "NVIDIA A100 80 GB", 81050, 8, 0, 108},       // 79.15 GiB
    Row{"h200", "NVIDIA H200", 143163, 9, 0, 132},                // 139.81 GiB
    // 178.36 GiB; 178.35: github.com/pytorch/ao/pull/4002
    Row{"b200", "NVIDIA B200", 182638, 10, 0, 148},
    // 31.36 GiB: github.com/TrajectoryCrafter/TrajectoryCrafter/issues/20
    Row{"rtx5090", "NVIDIA GeForce RTX 5090", 32113, 12, 0, 170},
    // 44.35 GiB: printed properties of torch, `name='NVIDIA A40', major=8, minor=6,
    // total_memory=45416MB`; newer drivers leave 44.42 GiB
    Row{"a40", "NVIDIA A40", 45416, 8, 6, 84},
    // 93.00 GiB: github.com/ali-vilab/VACE/issues/56
    Row{"h100-nvl", "NVIDIA H100 NVL 94 GB", 95232, 9, 0, 132},
    // 94.50 GiB on a GH200: github.com/vllm-project/vllm/issues/9630. No message of the H100 was
    // found; both have 97871 MiB in nvidia-smi
    Row{"h100-96g", "NVIDIA H100 96 GB", 96768, 9, 0, 132},
    Row{"gh200", "NVIDIA GH200 96 GB", 96768, 9, 0, 132},
    // 94.97 GiB: github.com/antirez/ds4/issues/431
    Row{"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", 97249, 12, 0, 188},
    // AMD: torch reports gfx942 and gfx950 as compute 9; other drivers leave 0.3 GiB less.
    // 191.98 GiB: github.com/vllm-project/vllm/issues/7951
    // 255.98 GiB: github.com/vllm-project/vllm/issues/41962
    // 287.98 GiB: github.com/ROCm/TheRock/issues/2118
    Row{"mi300x", "AMD Instinct MI300X", 196588, 9, 4, 304},
    Row{"mi325x", "AMD Instinct MI325X", 262124, 9, 4, 304},
    Row{"mi355x", "AMD Instinct MI355X", 294892, 9, 5, 256},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char letter) { return std::tolower(static_cast<unsigned char>(letter)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

const std::vector<DeviceModel>& device_catalogue() {
  static const std::vector<DeviceModel> sorted = [] {
    std::vector<DeviceModel> models;
    models.reserve(kRows.size());
    for (const Row& row : kRows) {
      models.push_back({row.key, row.name, row.memory_mib << 20, row.compute, row.compute_minor,
                        row.multiprocessors});
    }
    std::stable_sort(models.begin(), models.end(), [](const DeviceModel& a, const DeviceModel& b) {
      return a.memory_bytes < b.memory_bytes;
    });
    return models;
  }();
  return sorted;
}

const DeviceModel* find_device(std::string_view key) {
  for (const DeviceModel& model : device_catalogue()) {
    if (equal_ignoring_case(model.key, key)) return &model;
  }
  return nullptr;
}

}  // namespace tidegauge
