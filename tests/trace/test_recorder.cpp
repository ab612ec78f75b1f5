// SPDX-License-Identifier: BSD-3-Clause
// Failures while recording.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "trace_files.h"

namespace tidegauge {
namespace {

/// Records `count` steps. Each makes and frees 3 storages; one storage of 64 bytes stays.
std::vector<Event> steps(int count, uint64_t& next_storage) {
  std::vector<Event> events;
  events::Origin origin{0, ThreadId(1), kCpu};
  for (int step = 0; step < count; ++step) {
    origin.time_ns += 1000;
    events.push_back(events::step_marker(origin));
    events.push_back(events::storage_born(origin, StorageId(next_storage++), 64));
    events.push_back(events::module_enter(origin, ModuleId(1), Phase::Forward));
    for (uint64_t i = 0; i < 3; ++i) {
      events.push_back(events::storage_born(origin, StorageId(next_storage + i), 1000));
    }
    events.push_back(events::module_exit(origin, ModuleId(1), Phase::Forward));
    for (uint64_t i = 0; i < 3; ++i) {
      events.push_back(events::storage_freed(origin, StorageId(next_storage++)));
    }
  }
  return events;
}

void expect_right_after_gaps(const std::string& path, const std::vector<Event>& events,
                             const RecorderHealth& health) {
  Reader reader(path);
  Ledger replayed;
  reader.replay(replayed);
  Ledger live = apply_all(events);
  EXPECT_EQ(replayed.anomalies().total(), 0) << replayed.anomalies().first();
  EXPECT_EQ(replayed.storage_count(), live.storage_count());
  EXPECT_EQ(replayed.now().step, live.now().step);
  EXPECT_EQ(replayed.current().total_bytes(kCpu), live.current().total_bytes(kCpu));
  uint64_t lost = 0;
  for (const TraceGap& gap : reader.gaps()) lost += gap.lost_events;
  EXPECT_EQ(lost, health.lost_events);
  EXPECT_EQ(health.written_events, reader.event_count());
  EXPECT_EQ(reader.run_facts().at("lost_events"), std::to_string(health.lost_events));
}

TEST(Recorder, FullQueueLosesWholeStepsAndRecovers) {
  const Folder folder;
  uint64_t next_storage = 1;
  std::vector<Event> events;
  // The writing thread does not wake up for fewer than 16 Ki events.
  Recorder recorder(folder.file("run.tide"),
                    {.max_waiting_events = 100, .max_delay_ns = 3'600'000'000'000});
  for (int round = 0; round < 3; ++round) {
    const std::vector<Event> some = steps(50, next_storage);
    for (const Event& event : some) recorder.record(event, nullptr, {});
    events.insert(events.end(), some.begin(), some.end());
    recorder.flush();
  }
  recorder.close();
  EXPECT_EQ(recorder.health().lost_events, 3 * 400);
  EXPECT_TRUE(contains(recorder.health().first_error, "faster than the disk"));
  expect_right_after_gaps(folder.file("run.tide"), events, recorder.health());
}

TEST(Recorder, FullDiskIsCountedAndTheFileStaysValid) {
  const Folder folder;
  uint64_t next_storage = 1;
  Recorder recorder(folder.file("run.tide"), {.max_file_bytes = 256 * 1024});
  std::vector<Event> events;
  for (int round = 0; round < 40; ++round) {
    const std::vector<Event> some = steps(100, next_storage);
    for (const Event& event : some) recorder.record(event, nullptr, {});
    events.insert(events.end(), some.begin(), some.end());
    recorder.flush();
  }
  recorder.close();
  const RecorderHealth health = recorder.health();
  EXPECT_GT(health.lost_events, 0);
  EXPECT_EQ(health.lost_events + health.written_events, events.size());
  EXPECT_TRUE(contains(health.first_error, "full")) << health.first_error;
  EXPECT_LE(std::filesystem::file_size(folder.file("run.tide")), 256 * 1024);
  Reader reader(folder.file("run.tide"));
  const std::vector<Event> read = read_events(reader);
  ASSERT_EQ(read.size(), health.written_events);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), events.begin()));
}

TEST(Recorder, ResumesWhenTheDiskHasSpaceAgain) {
  const Folder folder;
  uint64_t next_storage = 1;
  Recorder recorder(folder.file("run.tide"));
  std::vector<Event> events;
  const auto train = [&] {
    const std::vector<Event> some = steps(30, next_storage);
    for (const Event& event : some) recorder.record(event, nullptr, {});
    events.insert(events.end(), some.begin(), some.end());
    recorder.flush();
  };
  train();
  {
    // A reader makes the writer wait until it gives up.
    Reader reader(folder.file("run.tide"));
    reader.visit_events(1, UINT64_MAX, [&](const Event&, uint64_t sequence) {
      if (sequence == 1) train();
    });
  }
  EXPECT_GT(recorder.health().lost_events, 0);
  train();
  recorder.close();
  expect_right_after_gaps(folder.file("run.tide"), events, recorder.health());
}

TEST(Recorder, InvalidPathThrowsBeforeTheRun) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  write_file(path, "precious");
  EXPECT_TRUE(contains(error_of<IoError>([&] { Recorder recorder(path); }), "exists"));
  EXPECT_EQ(read_file(path), "precious");
  EXPECT_TRUE(contains(error_of<IoError>([&] { Recorder r(folder.file("no/run.tide")); }),
                       "folder does not exist"));
  // The folder exists, but it refuses new files.
  EXPECT_TRUE(contains(error_of<IoError>([] { Recorder r("/proc/run.tide"); }),
                       "choose a folder that you may write to"));
  EXPECT_TRUE(contains(
      error_of<IoError>([&] { Recorder r(folder.file("small"), {.max_file_bytes = 8192}); }),
      "full"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("small")));
  Recorder replaced(path, {.overwrites = true});
}

/// SQLite would take it for its journal: follow a link, and truncate the file.
TEST(Recorder, FileWithTheNameOfTheJournalIsNotTouched) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  const std::string journal = path + "-journal";
  const std::string target = folder.file("target");
  const auto error = [&] { return error_of<IoError>([&] { Recorder recorder(path); }); };
  write_file(journal, "precious");
  EXPECT_TRUE(contains(error(), journal + " exists"));
  EXPECT_EQ(read_file(journal), "precious");
  std::filesystem::rename(journal, target);
  std::filesystem::create_symlink(target, journal);
  EXPECT_TRUE(contains(error(), journal + " exists"));
  EXPECT_EQ(read_file(target), "precious");
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(journal);
  write_file(journal, "");  // a killed run leaves an empty one
  const Recorder recorder(path);
}

TEST(Recorder, ForkedChildRecordsNothing) {
  const Folder folder;
  uint64_t next_storage = 1;
  const std::vector<Event> events = steps(20, next_storage);
  auto recorder = std::make_unique<Recorder>(folder.file("run.tide"));
  for (const Event& event : events) {
    recorder->record(event, nullptr, {});
    if (event.kind != EventKind::StepMarker) continue;
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < 100; ++i) recorder->record(event, nullptr, {});
      recorder->name_op(OpId(1), "of a child");
      recorder->flush();
      recorder->close();
      recorder.reset();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  recorder->close();
  Reader reader(folder.file("run.tide"));
  EXPECT_EQ(read_events(reader), events);
  EXPECT_TRUE(reader.ops().empty());
}

TEST(Recorder, KilledProcessLeavesAPrefixOfItsEvents) {
  const Folder folder;
  const int kills = std::getenv("TIDEGAUGE_LONG") ? 50 : 3;
  uint64_t next_storage = 1;
  const std::vector<Event> events = steps(50'000, next_storage);
  for (int i = 0; i < kills; ++i) {
    const std::string path = folder.file("run" + std::to_string(i) + ".tide");
    const pid_t child = ::fork();
    if (child == 0) {
      Recorder recorder(path, {.max_delay_ns = 1'000'000});
      for (const Event& event : events) recorder.record(event, nullptr, {});
      ::pause();
    }
    while (!std::filesystem::exists(path) || std::filesystem::file_size(path) < 100'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(i * 7919 % 100'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    Reader reader(path);
    const std::vector<Event> read = read_events(reader);
    ASSERT_LE(read.size(), events.size());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), events.begin()));
    EXPECT_FALSE(reader.is_complete());
    EXPECT_TRUE(reader.gaps().empty());
  }
}

TEST(Recorder, ThreadsMayRecordConcurrently) {
  const Folder folder;
  Recorder recorder(folder.file("run.tide"), {.max_delay_ns = 1'000'000});
  std::vector<std::thread> threads;
  for (uint16_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 1; i <= 5000; ++i) {
        recorder.record(events::storage_born({0, ThreadId(t), kCpu}, StorageId(10'000u * t + i), 8),
                        nullptr, {});
      }
      recorder.flush();
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder.close();
  recorder.close();
  EXPECT_EQ(Reader(recorder.path()).event_count(), 20'000);
}

TEST(Recorder, ServesOneTracker) {
  const Folder folder;
  Recorder recorder(folder.file("run.tide"));
  recorder.attach();
  EXPECT_THROW(recorder.attach(), UsageError);
}

}  // namespace
}  // namespace tidegauge
