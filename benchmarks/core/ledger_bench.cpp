// SPDX-License-Identifier: BSD-3-Clause
// Bars: events_per_second >= 10e6; the time per event with 10,000 known modules is at most 1.2
// times that with 10; bytes_per_storage <= 160.
#include <benchmark/benchmark.h>

#include <vector>

#include "core/events/event_factory.h"
#include "core/ledger/ledger.h"
#include "counting_new.h"
#include "training_step.h"

namespace tidegauge {
namespace {

void apply_training_steps(benchmark::State& state) {
  const auto known_modules = static_cast<uint32_t>(state.range(0));
  std::vector<Event> events;
  for (uint32_t first_leaf = 0; first_leaf < 10'000; first_leaf += kLeafCalls) {
    const std::vector<Event> step = TrainingStep(known_modules, first_leaf).make();
    events.insert(events.end(), step.begin(), step.end());
  }
  Ledger ledger;
  // Make all modules known before the clock starts.
  for (uint32_t m = 1; m <= known_modules; ++m) {
    ledger.apply(events::module_size({}, ModuleId(kDepth + m), SizeOf::Parameters, 1024));
  }
  for (const Event& event : events) ledger.apply(event);
  for (auto _ : state) {
    for (const Event& event : events) ledger.apply(event);
    benchmark::DoNotOptimize(ledger.current());
  }
  if (ledger.anomalies().total() > 0) state.SkipWithError(ledger.anomalies().first().c_str());
  state.counters["known_modules"] = known_modules;
  state.counters["events_per_second"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * static_cast<double>(events.size()),
      benchmark::Counter::kIsRate);
}
BENCHMARK(apply_training_steps)->ArgName("known_modules")->Arg(10)->Arg(10'000);

/// Peak memory of the Ledger per live storage, including the growth of its tables. With 786,433
/// storages the table has just grown, which is the worst case.
void hold_storages(benchmark::State& state) {
  const auto storages = static_cast<uint64_t>(state.range(0));
  const bool relabel = state.range(1) != 0;
  for (auto _ : state) {
    const size_t before = heap::live_bytes();
    heap::restart_peak();
    Ledger ledger;
    for (uint64_t id = 1; id <= storages; ++id) {
      ledger.apply(events::storage_born({}, StorageId(id), 64));
    }
    if (relabel) {
      ledger.apply(events::module_enter({}, ModuleId(1), Phase::Forward));
      for (uint64_t id = 1; id <= storages; ++id) {
        ledger.apply(events::storage_relabelled({}, StorageId(id), Role::IsParameter, Since::Now));
      }
    }
    state.counters["bytes_per_storage"] =
        static_cast<double>(heap::peak_bytes() - before) / static_cast<double>(storages);
  }
  state.counters["live_storages"] = static_cast<double>(storages);
}
BENCHMARK(hold_storages)
    ->ArgNames({"storages", "relabelled"})
    ->ArgsProduct({{10'000, 1'000'000, 786'433}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidegauge
