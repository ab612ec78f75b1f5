// SPDX-License-Identifier: BSD-3-Clause
// record_steps <file> <events> [<units>]: records a trace with at least this number of events, for
// tests and benchmarks of large traces. With <units>, the leaf modules are divided among this
// number of units of sharded parameters, which are gathered and released as in FSDP2. Sizes and
// times differ from step to step, so that the file is as large as that of a real run.
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

void name_modules(Recorder& recorder) {
  std::string path = "Net";
  for (uint32_t id = 1; id <= kDepth + 1000; ++id) {
    if (id > 1 && id <= kDepth) path += ".part" + std::to_string(id);
    const bool is_leaf = id > kDepth;
    recorder.name_module(ModuleId(id), is_leaf ? path + ".leaf." + std::to_string(id) : path, "M");
  }
  recorder.name_op(OpId(7), "aten::mm");
}

/// Records events with growing times.
class Tape {
 public:
  explicit Tape(Recorder& recorder) : recorder_(recorder) {}

  void record(Event event) {
    time_ns_ += static_cast<int64_t>(random_() % 20'000);
    event.time_ns = time_ns_;
    recorder_.record(event, nullptr, {});
    ++event_count_;
  }
  void record(UnitEvent event) {
    event.time_ns = time_ns_;
    recorder_.record_unit(event);
  }
  int64_t random_factor() { return static_cast<int64_t>(1 + random_() % 64); }
  uint64_t event_count() const { return event_count_; }

 private:
  Recorder& recorder_;
  std::mt19937_64 random_{1};
  int64_t time_ns_ =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  uint64_t event_count_ = 0;
};

/// Units of sharded parameters. Each is gathered for its leaf modules, in forward and again in
/// backward.
class Units {
 public:
  Units(Recorder& recorder, Tape& tape, uint32_t count) : tape_(tape), count_(count) {
    for (uint32_t unit = 1; unit <= count; ++unit) {
      recorder.name_unit(UnitId(unit), "blocks." + std::to_string(unit));
      own(make(64'000, Role::IsShardedParam, Since::Birth), UnitId(unit));
    }
  }

  /// `call`: the number of leaf modules that the step has already called in this phase.
  void before_leaf(Phase phase, int call) {
    if (count_ == 0) return;
    const int each = std::max(kLeafCalls / static_cast<int>(count_), 1);
    if (call % each != 0) return;
    release(phase);
    const auto place = static_cast<uint32_t>(call / each);
    if (place >= count_) return;
    gather(UnitId(phase == Phase::Forward ? place + 1 : count_ - place), phase);
  }

  void release(Phase phase) {
    if (!open_) return;
    if (phase == Phase::Backward) {
      const StorageId gradient = make(512'000, Role::IsUnshardedGrad, Since::Birth);
      own(gradient, open_);
      const StorageId buffer = make(512'000, Role::IsReduceScatterBuffer, Since::Now);
      own(buffer, open_);
      tape_.record(events::storage_freed(kOrigin, gradient));
      tape_.record(UnitEvent{.unit = open_, .kind = UnitEventKind::Reduced});
      tape_.record(events::storage_freed(kOrigin, buffer));
    }
    tape_.record(events::storage_freed(kOrigin, whole_));
    tape_.record(UnitEvent{.unit = open_, .kind = UnitEventKind::Released});
    open_ = {};
  }

 private:
  static constexpr events::Origin kOrigin{0, ThreadId(1), cuda(0)};

  void gather(UnitId unit, Phase phase) {
    const bool is_forward = phase == Phase::Forward;
    tape_.record(UnitEvent{
        .unit = unit,
        .kind = UnitEventKind::GatherBegun,
        .reason = is_forward ? GatherReason::Forward : GatherReason::Backward,
    });
    const StorageId buffer = make(512'000, Role::IsAllGatherBuffer, Since::Birth);
    own(buffer, unit);
    whole_ = make(512'000, Role::IsUnshardedParam, Since::Birth);
    own(whole_, unit);
    tape_.record(events::storage_freed(kOrigin, buffer));
    tape_.record(UnitEvent{.unit = unit, .kind = UnitEventKind::GatherFinished});
    open_ = unit;
  }

  StorageId make(int64_t size_bytes, Role role, Since since) {
    const StorageId storage(kFirstStorage + ++last_storage_);
    tape_.record(events::storage_born(kOrigin, storage, size_bytes, 0, OpId(7)));
    tape_.record(events::storage_relabelled(kOrigin, storage, role, since));
    return storage;
  }

  void own(StorageId storage, UnitId unit) {
    tape_.record(UnitEvent{.storage = storage, .unit = unit, .kind = UnitEventKind::StorageOwned});
  }

  static constexpr uint64_t kFirstStorage = 1ull << 40;

  Tape& tape_;
  uint32_t count_;
  uint64_t last_storage_ = 0;
  UnitId open_;
  StorageId whole_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  const uint64_t wanted = std::strtoull(argv[2], nullptr, 10);
  const auto unit_count = static_cast<uint32_t>(argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 0);
  Recorder recorder(argv[1], {.overwrites = true, .max_waiting_events = 4u << 20});
  name_modules(recorder);
  Tape tape(recorder);
  Units units(recorder, tape, unit_count);
  uint64_t last_storage = 0;
  for (uint64_t step = 0; tape.event_count() < wanted; ++step) {
    uint64_t highest = 0;
    int leaf_calls[2] = {};
    for (Event event : TrainingStep(1000, static_cast<uint32_t>(step * 37)).make()) {
      if (event.storage) {
        highest = std::max(highest, event.storage.value);
        event.storage = StorageId(event.storage.value + last_storage);
      }
      if (event.kind == EventKind::StorageBorn) event.size_bytes *= tape.random_factor();
      if (event.kind == EventKind::ModuleEnter && event.module.value > kDepth) {
        units.before_leaf(event.phase, leaf_calls[static_cast<size_t>(event.phase)]++);
      }
      if (event.kind == EventKind::ModuleExit && event.module.value == 1) {
        units.release(event.phase);
      }
      tape.record(event);
    }
    last_storage += highest;
    if (step % 8 == 0) recorder.flush();
  }
}
