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
  const char* source;  // of the memory
};

// Memory: `total_memory` of torch.cuda.get_device_properties, which torch's out-of-memory messages
// print as "total capacity". It is less than the advertised memory, because the driver reserves
// some, and differs by some MiB between boards and drivers; users can pass --device-memory for
// their own. A source is an issue with such a message, or what torch printed, as public code quotes
// it. Compute: major and minor compute capability, https://developer.nvidia.com/cuda-gpus; then the
// multiprocessors, from NVIDIA's data sheets. torch reports AMD's gfx942 and gfx950 as compute 9.
constexpr std::array kRows{
    Row{"t4", "NVIDIA T4", 14931, 7, 5, 40,
        "github.com/mbzuai-oryx/GeoPixel/issues/5: 14.58 GiB (other drivers: 14.56 to 14.76)"},
    Row{"v100-16g", "NVIDIA V100 16 GB", 16151, 7, 0, 80,
        "github.com/nomic-ai/gpt4all/issues/544: 15.77 GiB"},
    Row{"l4", "NVIDIA L4", 22478, 8, 9, 58,
        "21.95 GiB in messages of torch that do not name the board; 23034 MiB in nvidia-smi"},
    Row{"a10", "NVIDIA A10", 22518, 8, 6, 72, "github.com/zai-org/CogVLM/issues/236: 21.99 GiB"},
    Row{"a10g", "NVIDIA A10G", 22587, 8, 6, 80,
        "printed by torch: name='NVIDIA A10G', major=8, minor=6, total_memory=22587MB"},
    Row{"rtx4090", "NVIDIA GeForce RTX 4090", 24217, 8, 9, 128,
        "github.com/tloen/llama-int8/issues/7: 23.65 GiB"},
    Row{"rtx3090", "NVIDIA GeForce RTX 3090", 24268, 8, 6, 82,
        "github.com/GaoLii/DSP/issues/10: 23.70 GiB"},
    Row{"rtx5090", "NVIDIA GeForce RTX 5090", 32113, 12, 0, 170,
        "github.com/TrajectoryCrafter/TrajectoryCrafter/issues/20: 31.36 GiB"},
    Row{"v100-32g", "NVIDIA V100 32 GB", 32501, 7, 0, 80,
        "github.com/liucongg/ChatGLM-Finetuning/issues/73: 31.74 GiB"},
    Row{"a100-40g", "NVIDIA A100 40 GB", 40397, 8, 0, 108,
        "github.com/LianjiaTech/BELLE/issues/375: 39.45 GiB (other drivers: 39.38 to 39.59)"},
    Row{"a40", "NVIDIA A40", 45416, 8, 6, 84,
        "printed by torch: name='NVIDIA A40', major=8, minor=6, total_memory=45416MB"},
    Row{"l20", "NVIDIA L20", 45466, 8, 9, 92,
        "no message was found; 46068 MiB in nvidia-smi, like the L40, whose memory this is"},
    Row{"l40", "NVIDIA L40", 45466, 8, 9, 142, "github.com/QwenLM/Qwen3-VL/issues/2097: 44.40 GiB"},
    Row{"l40s", "NVIDIA L40S", 45599, 8, 9, 142,
        "github.com/Wan-Video/Wan2.1/issues/205: 44.53 GiB"},
    Row{"rtx-6000-ada", "NVIDIA RTX 6000 Ada", 48622, 8, 9, 142,
        "printed by torch: name='NVIDIA RTX 6000 Ada Generation', total_memory=48622MB (with ECC: "
        "44.43 GiB, github.com/DINGYANB/MTVCrafter/issues/21)"},
    Row{"rtx-a6000", "NVIDIA RTX A6000", 48676, 8, 6, 84,
        "github.com/google-research/semivl/issues/18: 47.54 GiB"},
    Row{"h100-80g", "NVIDIA H100 80 GB", 81004, 9, 0, 132,
        "github.com/vllm-project/vllm/issues/27508: 79.11 GiB"},
    Row{"a100-80g", "NVIDIA A100 80 GB", 81040, 8, 0, 108,
        "github.com/lianqi1008/Control-GIC/issues/6: 79.14 GiB"},
    Row{"h100-nvl", "NVIDIA H100 NVL 94 GB", 95232, 9, 0, 132,
        "github.com/ali-vilab/VACE/issues/56: 93.00 GiB"},
    Row{"h100-96g", "NVIDIA H100 96 GB", 96768, 9, 0, 132,
        "no message was found; 97871 MiB in nvidia-smi, like the GH200, whose memory this is"},
    Row{"gh200", "NVIDIA GH200 96 GB", 96768, 9, 0, 132,
        "github.com/vllm-project/vllm/issues/9630: 94.50 GiB"},
    Row{"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", 97249, 12, 0, 188,
        "github.com/antirez/ds4/issues/431: 94.97 GiB"},
    Row{"h20", "NVIDIA H20 96 GB", 97280, 9, 0, 78,
        "github.com/modelscope/DiffSynth-Studio/issues/1238: 95.00 GiB"},
    Row{"h200", "NVIDIA H200", 143156, 9, 0, 132,
        "printed by torch: name='NVIDIA H200', major=9, minor=0, total_memory=143156MB"},
    Row{"b200", "NVIDIA B200", 182638, 10, 0, 148,
        "github.com/pytorch/ao/pull/4002: 178.35 GiB (a message of torch: 178.36)"},
    Row{"b300", "NVIDIA B300", 274113, 10, 3, 148,
        "267.69 GiB in messages of torch on 8 x B300; public code quotes 267.68 GiB for a B300"},
    Row{"mi300x", "AMD Instinct MI300X", 196588, 9, 4, 304,
        "github.com/vllm-project/vllm/issues/7951: 191.98 GiB (other drivers: 0.3 GiB less)"},
    Row{"mi325x", "AMD Instinct MI325X", 262124, 9, 4, 304,
        "github.com/vllm-project/vllm/issues/41962: 255.98 GiB"},
    Row{"mi355x", "AMD Instinct MI355X", 294892, 9, 5, 256,
        "github.com/ROCm/TheRock/issues/2118: 287.98 GiB"},
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
                        row.multiprocessors, row.source});
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
