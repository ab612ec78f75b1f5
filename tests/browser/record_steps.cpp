// SPDX-License-Identifier: BSD-3-Clause
// record_steps <file> <events>: a trace of at least so many events, for tests that want a large
// one. Sizes and times differ from step to step, so that nothing is smaller than real runs are.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "core/training_step.h"
#include "trace/recorder.h"

namespace {

using namespace tidegauge;

void name_all(Recorder& recorder) {
  std::string path = "Net";
  for (uint32_t id = 1; id <= kDepth + 1000; ++id) {
    if (id > 1 && id <= kDepth) path += ".part" + std::to_string(id);
    const bool is_leaf = id > kDepth;
    recorder.name_module(ModuleId(id), is_leaf ? path + ".leaf." + std::to_string(id) : path, "M");
  }
  recorder.name_op(OpId(7), "aten::mm");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const uint64_t wanted = std::strtoull(argv[2], nullptr, 10);
  Recorder recorder(argv[1], {.overwrites = true, .max_waiting_events = 4u << 20});
  name_all(recorder);
  std::mt19937_64 random(1);
  int64_t time_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  uint64_t last_storage = 0;
  for (uint64_t count = 0, step = 0; count < wanted; ++step) {
    uint64_t highest = 0;
    for (Event event : TrainingStep(1000, static_cast<uint32_t>(step * 37)).make()) {
      time_ns += static_cast<int64_t>(random() % 20'000);
      event.time_ns = time_ns;
      if (event.storage) {
        highest = std::max(highest, event.storage.value);
        event.storage = StorageId(event.storage.value + last_storage);
      }
      if (event.kind == EventKind::StorageBorn) {
        event.size_bytes = event.size_bytes * static_cast<int64_t>(1 + random() % 64);
      }
      recorder.record(event, nullptr, {});
      ++count;
    }
    last_storage += highest;
    if (step % 8 == 0) recorder.flush();
  }
}
