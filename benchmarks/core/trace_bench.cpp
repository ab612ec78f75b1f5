// SPDX-License-Identifier: BSD-3-Clause
// Bars: bytes_per_event <= 40; for 10 million events, a replay and a summary for a report each take
// at most 20 seconds and 1 GiB.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "analyze/summary.h"
#include "counting_new.h"
#include "trace/reader.h"
#include "trace/recorder.h"
#include "training_step.h"

namespace tidegauge {
namespace {

constexpr uint64_t kEvents = 10'000'000;

/// Recorded once; removed when the program ends.
class Trace {
 public:
  Trace() : path_(std::filesystem::temp_directory_path() / ("bench" + std::to_string(::getpid()))) {
    const std::vector<Event> step = TrainingStep(1000, 0).make();
    Recorder recorder(path_);
    for (uint64_t i = 1; event_count_ < kEvents; ++i) {
      for (const Event& event : step) recorder.record(event, nullptr, {});
      event_count_ += step.size();
      if (i % 10 == 0) recorder.flush();  // real runs do not make events this fast
    }
  }
  ~Trace() { std::filesystem::remove(path_); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  std::string path() const { return path_; }
  uint64_t event_count() const { return event_count_; }

 private:
  std::filesystem::path path_;
  uint64_t event_count_ = 0;
};

const Trace& recorded_trace() {
  static const Trace trace;
  return trace;
}

void load_trace(benchmark::State& state) {
  const Trace& trace = recorded_trace();
  for (auto _ : state) {
    const size_t before = heap::live_bytes();
    heap::restart_peak();
    Reader reader(trace.path());
    Ledger ledger;
    reader.replay(ledger);
    benchmark::DoNotOptimize(ledger.peak());
    benchmark::DoNotOptimize(reader.storages_alive_at(ledger.now().sequence / 2, 100));
    if (ledger.now().sequence != trace.event_count()) state.SkipWithError("events are missing");
    state.counters["load_peak_bytes"] = static_cast<double>(heap::peak_bytes() - before);
  }
  state.counters["load_seconds"] =
      benchmark::Counter(static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["bytes_per_event"] =
      static_cast<double>(std::filesystem::file_size(trace.path())) /
      static_cast<double>(trace.event_count());
}
BENCHMARK(load_trace)->UseRealTime()->Unit(benchmark::kMillisecond);

/// Computes the summary that a report needs.
void summarize_trace(benchmark::State& state) {
  const Trace& trace = recorded_trace();
  for (auto _ : state) {
    const size_t before = heap::live_bytes();
    heap::restart_peak();
    Reader reader(trace.path());
    const TraceSummary summary = summarize(reader);
    if (summary.event_count != trace.event_count()) state.SkipWithError("events are missing");
    state.counters["summary_peak_bytes"] = static_cast<double>(heap::peak_bytes() - before);
  }
  state.counters["summary_seconds"] =
      benchmark::Counter(static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(summarize_trace)->UseRealTime()->Unit(benchmark::kMillisecond);

/// The cost of one event in the training thread.
void record_event(benchmark::State& state) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("one" + std::to_string(::getpid()));
  {
    Recorder recorder(path);
    const std::vector<Event> step = TrainingStep(1000, 0).make();
    for (auto _ : state) {
      for (const Event& event : step) recorder.record(event, nullptr, {});
      state.PauseTiming();
      recorder.flush();
      state.ResumeTiming();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(step.size()));
  }
  std::filesystem::remove(path);
}
BENCHMARK(record_event)->Iterations(20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tidegauge
