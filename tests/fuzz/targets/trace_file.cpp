// SPDX-License-Identifier: BSD-3-Clause
// Any trace file, with valid checksums: read by all analyses and exports, or rejected.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "allocator/request_stream.h"
#include "analyze/run.h"
#include "export/memory_viz.h"
#include "export/perfetto.h"
#include "input.h"
#include "trace/reader.h"
#include "trace/sealing.h"

namespace tidegauge::fuzz {
namespace {

const std::string& path() {
  static const std::string path = (std::filesystem::temp_directory_path() /
                                   ("tidegauge_fuzz_" + std::to_string(getpid()) + ".tide"))
                                      .string();
  return path;
}

void read_all() {
  const auto reader = std::make_shared<Reader>(path());
  reader->gaps();
  reader->drops();
  reader->failures();
  reader->optimizer_steps();
  reader->storages_alive_at(100, 1000);
  const Run run(reader, {.timeline = TimelineOptions{.max_moments = 1000}});
  for (const DevicePeak& peak : run.summary().peaks) {
    RequestStream requests(peak.device);
    reader->visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t sequence) {
      requests.add(event, sequence);
    });
    requests.simulate({.total_bytes = int64_t{1} << 36});
    JsonWriter out([](std::string_view) {});
    MemoryVizWriter writer(out, "");
    writer.add(*reader, {.device = peak.device});
    writer.finish();
  }
  PerfettoWriter writer([](std::string_view) {});
  writer.add(*reader, {.name = "run"});
  writer.finish();
}

}  // namespace
}  // namespace tidegauge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidegauge;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  seal(bytes);
  std::ofstream(fuzz::path(), std::ios::binary | std::ios::trunc) << bytes;
  fuzz::expect_clean_errors(fuzz::read_all);
  std::filesystem::remove(fuzz::path());
  return 0;
}
