// SPDX-License-Identifier: BSD-3-Clause
// The public reader: a Run with names in place of ids.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "analyze/run.h"
#include "tidegauge/reader.h"
#include "trace/reader.h"

namespace tidegauge {
namespace {

CategoryBytes to_bytes(const CategorySplit& split) { return {split.bytes}; }

template <typename Map, typename Key>
auto find_or_blank(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? typename Map::mapped_type{} : found->second;
}

int64_t parse_number(const std::string& text, int64_t otherwise) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() ? value
                                                                                   : otherwise;
}

/// A damaged file may have any times.
int64_t difference(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? 0 : result;
}

/// The ids of a run as names, and its times since its start.
class Translator {
 public:
  explicit Translator(const Run& run)
      : run_(run),
        ops_(run.source().ops()),
        tensors_(run.source().tensors()),
        stacks_(run.source().stacks()) {
    for (const TraceModule& module : run.source().modules()) modules_[module.id] = module.name;
    const auto facts = run.source().run_facts();
    started_ns_ =
        parse_number(find_or_blank(facts, std::string("started_ns")), run.summary().first_ns);
  }

  RunSummary summary() const {
    const TraceSummary& counted = run_.summary();
    RunSummary summary;
    summary.is_complete = run_.source().is_complete();
    summary.event_count = counted.event_count;
    for (const TraceGap& gap : run_.source().gaps()) summary.lost_events += gap.lost_events;
    summary.anomaly_count = counted.anomaly_count;
    summary.step_count = static_cast<int64_t>(counted.step_count);
    summary.optimizer_step_count = static_cast<int64_t>(counted.optimizer_step_count);
    if (counted.event_count != 0) {
      summary.duration_ns = std::max<int64_t>(difference(counted.last_ns, started_ns_), 0);
    }
    for (const DevicePeak& each : counted.peaks) summary.peaks.push_back(peak(each));
    std::stable_sort(summary.peaks.begin(), summary.peaks.end(),
                     [](const PeakSummary& a, const PeakSummary& b) {
                       const auto order = [](const PeakSummary& each) {
                         return std::pair(each.device == "meta", -each.bytes.total_bytes());
                       };
                       return order(a) < order(b);
                     });
    for (const StepPeak& step : counted.steps) {
      for (const DeviceSplit& device : step.bytes.devices) {
        summary.steps.push_back(
            {step.step, to_string(device.device), to_bytes(device.split), device.at.sequence});
      }
    }
    return summary;
  }

  MemoryTimeline timeline(const DeviceTimeline& read) const {
    MemoryTimeline timeline;
    timeline.device = to_string(read.device);
    timeline.moments.resize(read.sequences.size());
    for (size_t i = 0; i < read.sequences.size(); ++i) {
      timeline.moments[i].sequence = read.sequences[i];
      timeline.moments[i].after_ns = difference(read.times_ns[i], started_ns_);
    }
    for (size_t i = 0; i < read.contexts.size(); ++i) {
      const size_t end =
          i + 1 < read.contexts.size() ? read.contexts[i + 1].first : timeline.moments.size();
      for (size_t at = read.contexts[i].first; at < end; ++at) {
        timeline.moments[at].step = read.contexts[i].step;
      }
    }
    add_up(read.pieces, timeline.moments);
    return timeline;
  }

 private:
  PeakSummary peak(const DevicePeak& read) const {
    PeakSummary peak;
    peak.device = to_string(read.device);
    peak.bytes = to_bytes(read.split);
    peak.sequence = read.at.sequence;
    peak.after_ns = difference(read.at.time_ns, started_ns_);
    peak.step = read.at.step;
    peak.in_optimizer_step = read.at.in_optimizer_step;
    for (const RunningCall& call : read.running) {
      peak.running.push_back(
          {find_or_blank(modules_, call.module), std::string(to_string(call.phase))});
    }
    for (const StorageGroup& group : read.groups) {
      const TraceTensor tensor = find_or_blank(tensors_, group.tensor);
      peak.groups.push_back({group.category, find_or_blank(modules_, group.module),
                             find_or_blank(ops_, group.op), tensor.dtype, tensor.shape,
                             find_or_blank(stacks_, group.stack), static_cast<int64_t>(group.count),
                             group.size_bytes});
    }
    for (const UnitSummary& unit : run_.units()) {
      const auto held = unit.at_peak.find(read.device);
      if (held == unit.at_peak.end()) continue;
      peak.units.push_back({unit.name, to_bytes(held->second), unit.gather_count, unit.reduce_count,
                            unit.longest_whole_ns});
    }
    std::stable_sort(peak.units.begin(), peak.units.end(),
                     [](const UnitAtPeak& a, const UnitAtPeak& b) {
                       return a.bytes.total_bytes() > b.bytes.total_bytes();
                     });
    return peak;
  }

  /// The bytes of each moment: those of the pieces that hold it.
  static void add_up(const std::vector<TimelinePiece>& pieces,
                     std::vector<MemoryTimeline::Moment>& moments) {
    // First each moment gets the change from the one before.
    for (const TimelinePiece& piece : pieces) {
      const auto category = static_cast<size_t>(piece.category);
      moments[piece.first].bytes.bytes[category] += piece.size_bytes;
      if (piece.end < moments.size()) moments[piece.end].bytes.bytes[category] -= piece.size_bytes;
    }
    for (size_t i = 1; i < moments.size(); ++i) {
      for (size_t category = 0; category < kCategoryCount; ++category) {
        moments[i].bytes.bytes[category] += moments[i - 1].bytes.bytes[category];
      }
    }
  }

  const Run& run_;
  std::map<ModuleId, std::string> modules_;
  std::map<OpId, std::string> ops_;
  std::map<uint32_t, TraceTensor> tensors_;
  std::map<uint32_t, std::string> stacks_;
  int64_t started_ns_ = 0;
};

}  // namespace

class TraceFile::Impl {
 public:
  Impl(const std::string& path, const ReadOptions& options)
      : reader_(std::make_shared<Reader>(path)), options_(options) {}

  std::map<std::string, std::string> facts() { return reader_->run_facts(); }

  void read() {
    if (is_read_) return;
    const Run run(reader_, {.timeline = TimelineOptions{.max_moments = options_.max_moments}});
    const Translator translator(run);
    summary = translator.summary();
    for (const DeviceTimeline& each : run.timelines()) {
      timelines.push_back(translator.timeline(each));
    }
    is_read_ = true;
  }

  RunSummary summary;
  std::vector<MemoryTimeline> timelines;

 private:
  std::shared_ptr<Reader> reader_;
  ReadOptions options_;
  bool is_read_ = false;
};

TraceFile::TraceFile(const std::string& path, const ReadOptions& options)
    : impl_(std::make_unique<Impl>(path, options)) {}
TraceFile::~TraceFile() = default;
TraceFile::TraceFile(TraceFile&&) noexcept = default;
TraceFile& TraceFile::operator=(TraceFile&&) noexcept = default;

std::map<std::string, std::string> TraceFile::facts() { return impl_->facts(); }

const RunSummary& TraceFile::summary() {
  impl_->read();
  return impl_->summary;
}

const std::vector<MemoryTimeline>& TraceFile::timelines() {
  impl_->read();
  return impl_->timelines;
}

}  // namespace tidegauge
