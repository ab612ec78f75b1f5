// SPDX-License-Identifier: BSD-3-Clause
//
// Records training steps on the CPU, reads the trace back and prints on which GPUs the run would
// fit. No GPU and no Python are needed.
//
//   fits_devices [TRACE]     writes TRACE, by default fits_devices.tide, and replaces it
#include <torch/torch.h>

#include <cstdio>
#include <string>

#include "tidegauge/tidegauge.h"

namespace nn = torch::nn;
using tidegauge::Verdict;

constexpr int64_t kWidth = 1024;
constexpr int64_t kBatch = 4096;
constexpr double kGiB = 1 << 30;

/// Two steps: AdamW makes its states in the first one.
void train(const std::string& trace) {
  nn::Sequential model(nn::Linear(kWidth, 4 * kWidth), nn::GELU(), nn::Linear(4 * kWidth, kWidth));
  torch::optim::AdamW optimizer(model->parameters());
  const auto inputs = torch::randn({kBatch, kWidth});

  tidegauge::MemTrackerOptions options;
  options.record = trace;
  options.overwrites = true;
  tidegauge::MemTracker tracker(options);
  tracker.track_external(model, optimizer, inputs);
  tracker.enter();
  for (int step = 0; step < 2; ++step) {
    tidegauge::call(model, inputs).square().mean().backward();
    tidegauge::step(optimizer);
    optimizer.zero_grad();
  }
  tracker.exit();
}

int main(int argc, char** argv) {
  const std::string trace = argc > 1 ? argv[1] : "fits_devices.tide";
  train(trace);

  tidegauge::TraceFile file(trace);
  for (const tidegauge::PeakSummary& peak : file.summary().peaks) {
    std::printf("%s: tensor peak %.3f GiB in step %lld\n", peak.device.c_str(),
                static_cast<double>(peak.bytes.total_bytes()) / kGiB,
                static_cast<long long>(peak.step));
  }
  for (const tidegauge::Layer& layer : tidegauge::judge(trace).layers) {
    std::printf(
        "%-20s %8.3f GiB (%.3f to %.3f)  %s\n", layer.name.c_str(),
        static_cast<double>(layer.size_bytes) / kGiB, static_cast<double>(layer.low_bytes) / kGiB,
        static_cast<double>(layer.high_bytes) / kGiB, std::string(to_string(layer.basis)).c_str());
  }
  for (const tidegauge::DeviceModel& device : tidegauge::device_catalogue()) {
    tidegauge::FitOptions options;
    options.device = device;
    const Verdict verdict = tidegauge::judge(trace, options);
    std::printf("%-26s %7.2f GiB: %s\n", device.name.c_str(),
                static_cast<double>(device.memory_bytes) / kGiB,
                std::string(to_string(*verdict.fit)).c_str());
  }
}
