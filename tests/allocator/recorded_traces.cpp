// SPDX-License-Identifier: BSD-3-Clause
#include "recorded_traces.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace tidegauge {
namespace {

/// Runs gzip, which every Debian has, so that no library must be installed.
std::string decompress(const std::string& path) {
  const auto close = [](std::FILE* file) { pclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(
      // NOLINTNEXTLINE(bugprone-command-processor): the path comes from the tester.
      popen(("gzip -dc '" + path + "'").c_str(), "r"), close);
  if (!pipe) throw std::runtime_error("cannot run gzip");
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), count);
  }
  if (text.empty()) throw std::runtime_error("cannot read " + path);
  return text;
}

}  // namespace

std::string recorded_traces_folder() {
  const char* folder = std::getenv("TIDEGAUGE_RECORDED_TRACES");
  return folder != nullptr ? folder : TIDEGAUGE_SOURCE_DIR "/../shared/recorded-traces";
}

std::vector<std::string> recorded_trace_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(recorded_traces_folder(), error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".txt.gz")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool must_have_recorded_traces() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

std::string no_recorded_traces() {
  return "no recorded traces in " + recorded_traces_folder() +
         "; set TIDEGAUGE_RECORDED_TRACES to their folder";
}

TextTrace read_recorded_trace(const std::string& name) {
  std::istringstream text(decompress(recorded_traces_folder() + "/" + name));
  return read_text_trace(text);
}

std::vector<DeviceTraceEntry> entries_of(const TextTrace& recorded) {
  std::vector<DeviceTraceEntry> entries;
  const auto add = [&](TraceAction action, int64_t address, int64_t size_bytes, int64_t stream) {
    entries.push_back({action, cuda(0), static_cast<uint64_t>(address), size_bytes,
                       static_cast<uint64_t>(stream)});
  };
  for (const SegmentState& segment : recorded.initial_layout) {
    add(TraceAction::SegmentAlloc, segment.address, segment.size_bytes, 0);
    for (const BlockState& block : segment.blocks) {
      if (block.use == BlockUse::Free) continue;
      const int64_t asked_bytes = block.requested_bytes;
      add(TraceAction::Alloc, block.address, asked_bytes > 0 ? asked_bytes : block.size_bytes, 0);
    }
  }
  for (const TraceEvent& event : recorded.trace.events) {
    add(event.action, event.address, event.size_bytes, event.stream);
  }
  return entries;
}

void LiveBlocks::count(const DeviceTraceEntry& entry) {
  if (entry.action == TraceAction::Alloc) {
    const int64_t rounded = entry.size_bytes + (-entry.size_bytes & 511);
    if (!blocks.emplace(entry.address, rounded).second) throw std::logic_error("allocated twice");
    live_bytes += rounded;
    peak_bytes = std::max(peak_bytes, live_bytes);
  } else if (entry.action == TraceAction::FreeRequested) {
    const auto found = blocks.find(entry.address);
    if (found == blocks.end()) throw std::logic_error("freed, but not allocated");
    live_bytes -= found->second;
    blocks.erase(found);
  }
}

}  // namespace tidegauge
