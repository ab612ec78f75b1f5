// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

namespace tidegauge::standin {

/// What this process pretends to have. Read once, from the environment variable
/// TIDEGAUGE_STANDIN ("devices=8 memory=84938850304 ..."), which python/tidegauge/standin writes.
struct Settings {
  int devices = 1;
  std::string name = "stand-in for a GPU";
  size_t memory_bytes = size_t{16} << 30;  // of each device
  size_t context_bytes = 0;                // of each device that this process uses
  size_t communication_bytes = 0;          // of NCCL, from the first communicator on
  size_t cudnn_workspace_bytes = 0;        // of every cuDNN plan: its heuristics are not public
  int major = 9;
  int minor = 0;
  int multiprocessors = 132;
  /// Larger copies move no data.
  size_t copy_limit_bytes = size_t{1} << 20;
  /// False: an event is done when it is recorded. True: when the program waits for it or for its
  /// stream. The two bound what `record_stream` costs.
  bool slow_events = false;
};

const Settings& settings();

/// The devices that CUDA_VISIBLE_DEVICES leaves. Read at the first call, because programs set it.
int visible_devices();

}  // namespace tidegauge::standin
