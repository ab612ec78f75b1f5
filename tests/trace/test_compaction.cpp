// SPDX-License-Identifier: BSD-3-Clause
// Traces of long runs, which keep only the last steps and those around the peaks.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "core/events/steps_begun.h"
#include "trace/compaction.h"
#include "trace/format_version.h"
#include "trace_files.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::Compaction;
using trace::Keep;
using trace::TraceWriter;

constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

/// A run with parameters, activations that late labels rename, a leak, modules that are made anew
/// in each step, two devices, units, and one high step.
class LongRun {
 public:
  std::vector<CodedEvent> step(int64_t activation_bytes) {
    origin_.time_ns += 1'000'000;
    add(events::step_marker(origin_));
    const ModuleId module(++modules_);
    add(events::module_enter(origin_, kNet, Phase::Forward));
    add(events::module_enter(origin_, module, Phase::Forward));
    std::vector<StorageId> activations;
    for (int i = 0; i < 5; ++i) {
      origin_.device = i % 2 == 0 ? kCpu : cuda(0);
      activations.push_back(next());
      add(events::storage_born(origin_, activations.back(), activation_bytes + i));
    }
    add(events::module_exit(origin_, module, Phase::Forward));
    add(events::module_exit(origin_, kNet, Phase::Forward));
    // Late: a label since birth changes the past, and one may be the last event of its storage.
    for (const StorageId id : activations) {
      add(events::storage_relabelled(origin_, id, Role::IsSavedForBackward, Since::Birth));
    }
    if (step_ == 0) {
      for (int i = 0; i < 3; ++i) {
        const StorageId id = next();
        add(events::storage_born(origin_, id, 4096));
        add(events::storage_relabelled(origin_, id, Role::IsParameter, Since::Birth));
      }
    }
    add(events::optimizer_step_begin(origin_));
    if (step_ % 7 == 0) add(events::storage_born(origin_, next(), 8));  // the leak
    add(events::optimizer_step_end(origin_));
    for (const StorageId id : activations) add(events::storage_freed(origin_, id));
    add(events::module_gone(origin_, module));
    ++step_;
    return std::exchange(events_, {});
  }

  static constexpr ModuleId kNet{1};

 private:
  StorageId next() { return StorageId(++storages_); }
  void add(const Event& event) { events_.push_back({.event = event}); }

  events::Origin origin_{1, ThreadId(1), kCpu};
  std::vector<CodedEvent> events_;
  uint64_t storages_ = 0;
  uint32_t modules_ = 1;
  int step_ = 0;
};

/// Writes a run, and drops what is older than `keep` whenever `drop` is called.
class KeptTrace {
 public:
  explicit KeptTrace(std::string path)
      : path_(std::move(path)),
        writer_(std::make_unique<TraceWriter>(path_, false, 0, trace::RunFacts{},
                                              trace::kVersionWithDrops)) {}

  void write(const std::vector<CodedEvent>& events) {
    for (const CodedEvent& traced : events) whole_.apply(traced.event);
    waiting_.insert(waiting_.end(), events.begin(), events.end());
    if (waiting_.size() >= 200) flush();
  }
  void flush() {
    if (waiting_.empty()) return;
    trace::Names names;
    for (const CodedEvent& traced : waiting_) {
      if (traced.event.module) names.modules[traced.event.module].name = "module";
    }
    writer_->write(waiting_, {}, names, nullptr, {});
    written_ += waiting_.size();
    waiting_.clear();
  }
  void drop(const Keep& keep, int64_t now_ns = 0, int slices = 1) {
    flush();
    Compaction compaction(*writer_, keep, now_ns);
    while (--slices > 0) compaction.advance(0);
    ASSERT_TRUE(compaction.advance(kForever));
    auto copy = compaction.finish();
    copy->move_to(path_);
    writer_ = std::move(copy);
  }

  /// The replay of the file has the bytes and peaks of the whole run.
  void expect_right() {
    flush();
    Reader reader(path_);
    Ledger replayed;
    reader.replay(replayed);
    EXPECT_EQ(replayed.anomalies().total(), 0u) << replayed.anomalies().first();
    EXPECT_EQ(replayed.storage_count(), whole_.storage_count());
    EXPECT_EQ(replayed.now().step, whole_.now().step);
    expect_same(replayed.current(), whole_.current());
    expect_same(replayed.peak(), whole_.peak());
    uint64_t events = reader.event_count();
    for (const TraceDrop& drop : reader.drops()) events += drop.events - drop.net_events;
    EXPECT_EQ(events, written_);
  }

  TraceWriter& writer() {
    flush();
    return *writer_;
  }
  const std::string& path() const { return path_; }

 private:
  static void expect_same(const Snapshot& found, const Snapshot& expected) {
    ASSERT_EQ(found.devices.size(), expected.devices.size());
    for (const DeviceSplit& device : expected.devices) {
      const CategorySplit* split = found.find(device.device);
      ASSERT_NE(split, nullptr);
      EXPECT_EQ(split->bytes, device.split.bytes);
    }
  }

  const std::string path_;
  std::unique_ptr<TraceWriter> writer_;
  std::vector<CodedEvent> waiting_;
  Ledger whole_;
  uint64_t written_ = 0;
};

/// The copies of a trace, and their journals.
int copies_of(const std::string& path) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    count += entry.path().string().starts_with(path + "-kept") ? 1 : 0;
  }
  return count;
}

TEST(Compaction, KeepsTheLastStepsAndThoseAroundThePeak) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  for (int step = 1; step <= 100; ++step) trace.write(run.step(step == 40 ? 9000 : 1000));
  trace.drop({.steps = 10});
  trace.expect_right();
  Reader reader(trace.path());
  ASSERT_EQ(reader.drops().size(), 2u);  // before the peak, and after it
  EXPECT_EQ(reader.drops()[0].steps, 38u);
  EXPECT_EQ(reader.drops()[1].steps, 49u);
  EXPECT_TRUE(reader.gaps().empty());  // nothing was lost
  std::vector<uint32_t> steps;
  uint32_t step = 0;
  reader.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t) {
    if (event.kind != EventKind::StepMarker) return;
    step += steps_begun(event);
    steps.push_back(step);
  });
  EXPECT_EQ(steps,
            (std::vector<uint32_t>{38, 39, 40, 41, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100}));
}

TEST(Compaction, RepeatedDropsAddUpAndTheFileDoesNotGrow) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  std::vector<uintmax_t> sizes;
  for (int round = 0; round < 30; ++round) {
    for (int step = 0; step < 40; ++step) trace.write(run.step(round == 4 ? 5000 + step : 1000));
    trace.drop({.steps = 20}, 0, 1 + round % 3);
    sizes.push_back(std::filesystem::file_size(trace.path()));
    trace.expect_right();
    EXPECT_EQ(copies_of(trace.path()), 0);
  }
  // Only the leak of a byte in seven steps remains of the others.
  EXPECT_LT(sizes.back(), sizes[6] + sizes[6] / 4);
  Reader reader(trace.path());
  EXPECT_EQ(reader.run_facts().count("ended"), 0u);
  // 1,200 modules were called, and one stays in use.
  EXPECT_LT(reader.modules().size(), 150u);
}

TEST(Compaction, KeepsByTime) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  for (int step = 1; step <= 100; ++step) trace.write(run.step(1000));
  trace.drop({.time_ns = 25'000'000}, /*now_ns=*/100'000'001);
  trace.expect_right();
  Reader reader(trace.path());
  int markers = 0;
  reader.visit_events(reader.drops().back().sequence + reader.drops().back().net_events, UINT64_MAX,
                      [&](const Event& event, uint64_t) {
                        markers += event.kind == EventKind::StepMarker ? 1 : 0;
                      });
  EXPECT_GE(markers, 25);
  EXPECT_LE(markers, 25 + 11);  // up to a batch more
}

TEST(Compaction, EventsWrittenMeanwhileAreCopied) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  for (int step = 1; step <= 100; ++step) trace.write(run.step(1000));
  Compaction compaction(trace.writer(), {.steps = 10}, 0);
  EXPECT_TRUE(compaction.advance(kForever));
  trace.write(run.step(7000));  // a new peak
  trace.flush();
  EXPECT_TRUE(compaction.advance(kForever));
  const auto copy = compaction.finish();
  Reader reader(copy->path());
  Ledger replayed;
  reader.replay(replayed);
  EXPECT_EQ(replayed.now().step, 101u);
  EXPECT_EQ(replayed.peak().total_bytes(kCpu), trace.writer().peak().total_bytes(kCpu));
}

TEST(Compaction, RunWithoutStepsIsCutAtABatch) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  events::Origin origin{0, ThreadId(1), kCpu};
  for (uint64_t id = 1; id <= 1000; ++id) {
    origin.time_ns += 1000;
    std::vector<CodedEvent> events{{.event = events::storage_born(origin, StorageId(id), 100)}};
    if (id > 5) events.push_back({.event = events::storage_freed(origin, StorageId(id - 5))});
    trace.write(events);
  }
  trace.drop({.time_ns = 100'000}, /*now_ns=*/1'000'000);
  trace.expect_right();
}

TEST(Compaction, AbandonedCopyIsRemovedAndTheTraceIsUnchanged) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  for (int step = 1; step <= 50; ++step) trace.write(run.step(1000));
  trace.flush();
  const std::string before = read_file(trace.path());
  {
    Compaction compaction(trace.writer(), {.steps = 10}, 0);
    compaction.advance(kForever);
    EXPECT_GE(copies_of(trace.path()), 1);
  }
  EXPECT_TRUE(read_file(trace.path()) == before);
  EXPECT_EQ(copies_of(trace.path()), 0);
  trace.write(run.step(1000));
  trace.expect_right();
}

/// A name that can be predicted would let a planted link, or a file of the user, be overwritten.
TEST(Compaction, EachCopyHasANewName) {
  const Folder folder;
  KeptTrace trace(folder.file("run.tide"));
  LongRun run;
  for (int step = 1; step <= 50; ++step) trace.write(run.step(1000));
  trace.flush();
  const std::string own = trace.path() + "-kept";
  write_file(own, "a file of the user");
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    Compaction compaction(trace.writer(), {.steps = 10}, 0);
    EXPECT_TRUE(compaction.advance(kForever));
    names.insert(compaction.finish()->path());
  }
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(read_file(own), "a file of the user");
}

TEST(Compaction, FailedAllocationsStay) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  TraceWriter writer(path, false, 0, {}, trace::kVersionWithDrops);
  LongRun run;
  trace::Names names;
  names.failures[1].op = "aten::mm";
  names.failures[1].live.emplace_back().device = "cpu";
  std::vector<CodedEvent> events = run.step(1000);
  events.push_back(
      {.event = events::allocation_failed({5, ThreadId(1), kCpu}, 64, {}, {}), .tensor = 1});
  writer.write(events, {}, names, nullptr, {});
  for (int step = 0; step < 50; ++step) writer.write(run.step(1000), {}, {}, nullptr, {});
  Compaction compaction(writer, {.steps = 5}, 0);
  ASSERT_TRUE(compaction.advance(kForever));
  const auto copy = compaction.finish();
  Reader reader(copy->path());
  const std::vector<PostMortem> failures = reader.failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0].op, "aten::mm");
  EXPECT_EQ(failures[0].live.size(), 1u);
  uint64_t found = 0;
  reader.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t sequence) {
    if (event.kind == EventKind::AllocationFailed) found = sequence;
  });
  EXPECT_EQ(failures[0].sequence, found);
}

// ---- with a Recorder ----

TEST(Retention, FileOfALongRunIsBounded) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  Recorder recorder(path, {.keep = {.steps = 50}, .max_delay_ns = 1'000'000});
  LongRun run;
  uint64_t events = 0;
  uintmax_t largest = 0;
  for (int step = 0; step < 1500; ++step) {
    for (const CodedEvent& traced : run.step(1000)) {
      recorder.record(traced.event, nullptr, {});
      ++events;
    }
    if (step % 20 == 0) recorder.flush();
    largest = std::max(largest, std::filesystem::file_size(path));
  }
  recorder.close();
  const RecorderHealth health = recorder.health();
  EXPECT_EQ(health.written_events, events);
  EXPECT_EQ(health.lost_events, 0u);
  EXPECT_GT(health.dropped_events, events / 2);
  EXPECT_LT(largest, 700'000u);  // 1,500 steps would have more than 1 MB
  EXPECT_EQ(copies_of(path), 0);
  EXPECT_FALSE(std::filesystem::exists(path + "-journal"));
  Reader reader(path);
  EXPECT_TRUE(reader.is_complete());
  Ledger replayed;
  reader.replay(replayed);
  EXPECT_EQ(replayed.anomalies().total(), 0u) << replayed.anomalies().first();
  EXPECT_EQ(replayed.now().step, 1500u);
}

TEST(Retention, KilledProcessLeavesAReadableFile) {
  for (const int milliseconds : {40, 60, 90, 130, 180, 240, 310, 390}) {
    const Folder folder;
    const std::string path = folder.file("run.tide");
    const pid_t child = ::fork();
    if (child == 0) {
      Recorder recorder(path, {.keep = {.steps = 10}, .max_delay_ns = 500'000});
      LongRun run;
      for (;;) {
        for (const CodedEvent& traced : run.step(1000)) recorder.record(traced.event, nullptr, {});
        recorder.flush();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    // Killed before the tables existed.
    if (!std::filesystem::exists(path) || std::filesystem::file_size(path) == 0) continue;
    Reader reader(path);
    Ledger replayed;
    reader.replay(replayed);
    EXPECT_EQ(replayed.anomalies().total(), 0u) << replayed.anomalies().first();
    EXPECT_FALSE(reader.is_complete());
  }
}

TEST(Retention, FileThatWasReplacedIsLeftAlone) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  Recorder recorder(path, {.keep = {.steps = 5}, .max_delay_ns = 1'000'000, .prints_loss = false});
  LongRun run;
  const auto train = [&] {
    for (int step = 0; step < 40; ++step) {
      for (const CodedEvent& traced : run.step(1000)) recorder.record(traced.event, nullptr, {});
    }
    recorder.flush();
  };
  train();
  std::filesystem::remove(path);
  write_file(path, "precious");
  train();
  train();
  recorder.close();
  EXPECT_EQ(read_file(path), "precious");
}

}  // namespace
}  // namespace tidegauge
