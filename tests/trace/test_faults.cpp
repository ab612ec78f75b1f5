// SPDX-License-Identifier: BSD-3-Clause
// Every system call of a recording fails once, fails from then on, or is the last one of a process
// that is killed: the program goes on, the file stays readable, and losses are counted.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>

#include "trace_files.h"

namespace tidegauge {
namespace {

enum class Mode { Off, Once, FromThenOn, Kill };

/// The fault that is injected. The writing thread of the recorder makes the calls.
struct Fault {
  std::atomic<Mode> mode{Mode::Off};
  std::atomic<int> left{0};  // calls until the fault
  std::atomic<int> count{0};

  /// True if the call must fail.
  bool strikes() {
    ++count;
    const Mode now = mode;
    if (now == Mode::Off) return false;
    const int before = left--;
    if (before > 1 || (before < 1 && now != Mode::FromThenOn)) return false;
    if (now == Mode::Kill) ::raise(SIGKILL);
    errno = ENOSPC;
    return true;
  }
};
Fault fault;

using Call = sqlite3_syscall_ptr;
std::array<Call, 3> originals;

ssize_t write_at(int file, const void* bytes, size_t size, off_t at) {
  using Function = ssize_t (*)(int, const void*, size_t, off_t);
  return fault.strikes() ? -1 : reinterpret_cast<Function>(originals[0])(file, bytes, size, at);
}
int truncate(int file, off_t size) {
  using Function = int (*)(int, off_t);
  return fault.strikes() ? -1 : reinterpret_cast<Function>(originals[1])(file, size);
}
int open(const char* path, int flags, int mode) {
  using Function = int (*)(const char*, int, int);
  return fault.strikes() ? -1 : reinterpret_cast<Function>(originals[2])(path, flags, mode);
}

struct SystemCall {
  const char* name;
  size_t index;
  Call replacement;
};
const std::array<SystemCall, 4> kCalls = {{{"pwrite64", 0, reinterpret_cast<Call>(&write_at)},
                                           {"pwrite", 0, reinterpret_cast<Call>(&write_at)},
                                           {"ftruncate", 1, reinterpret_cast<Call>(&truncate)},
                                           {"open", 2, reinterpret_cast<Call>(&open)}}};

/// Replaces a system call of SQLite, until it is destroyed.
class Replaced {
 public:
  explicit Replaced(const SystemCall& call) : call_(call), system_(sqlite3_vfs_find("unix")) {
    originals[call.index] = system_->xGetSystemCall(system_, call.name);
    system_->xSetSystemCall(system_, call.name, call.replacement);
  }
  ~Replaced() {
    fault.mode = Mode::Off;
    system_->xSetSystemCall(system_, call_.name, nullptr);
  }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  const SystemCall& call_;
  sqlite3_vfs* system_;
};

constexpr int kRounds = 3;

/// Every call, or every third one: each needs several syncs of the disk.
int stride() { return std::getenv("TIDEGAUGE_LONG") ? 1 : 3; }

std::vector<Event> round_of_events(int round) {
  std::vector<Event> events;
  const events::Origin origin{1000 * (round + 1), ThreadId(1), kCpu};
  events.push_back(events::step_marker(origin));
  for (uint64_t i = 0; i < 200; ++i) {
    const StorageId id(1 + i + 1000 * static_cast<uint64_t>(round));
    events.push_back(events::storage_born(origin, id, 512));
    if (i % 2 == 0) events.push_back(events::storage_freed(origin, id));
  }
  return events;
}

/// Calls `flushed(number of events so far)` after each round. False if the file cannot be made.
template <typename Flushed>
bool record_rounds(const std::string& path, RecorderHealth& health, Flushed flushed) {
  try {
    Recorder recorder(path, {.max_delay_ns = 3'600'000'000'000, .prints_loss = false});
    size_t count = 0;
    for (int round = 0; round < kRounds; ++round) {
      for (const Event& event : round_of_events(round)) {
        recorder.record(event, nullptr, {});
        ++count;
      }
      recorder.name_op(OpId(static_cast<uint32_t>(round + 1)), "aten::op");
      recorder.flush();
      flushed(count);
    }
    recorder.close();
    health = recorder.health();
    return true;
  } catch (const IoError&) {
    return false;
  }
}

std::vector<Event> all_events() {
  std::vector<Event> all;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Event> some = round_of_events(round);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

int count_calls(const SystemCall& call) {
  const Folder folder;
  const Replaced replaced(call);
  fault.count = 0;
  RecorderHealth health;
  EXPECT_TRUE(record_rounds(folder.file("run.tide"), health, [](size_t) {}));
  EXPECT_EQ(health.lost_events, 0u);
  return fault.count;
}

TEST(Faults, EverySystemCallMayFail) {
  int points = 0;
  uint64_t lost = 0;
  for (const SystemCall& call : kCalls) {
    const int count = count_calls(call);
    for (const Mode mode : {Mode::Once, Mode::FromThenOn}) {
      for (int point = 1; point <= count; point += stride()) {
        SCOPED_TRACE(std::string(call.name) + " " + std::to_string(point) +
                     (mode == Mode::Once ? " once" : " from then on"));
        const Folder folder;
        const std::string path = folder.file("run.tide");
        RecorderHealth health;
        bool is_made = false;
        {
          const Replaced replaced(call);
          fault.left = point;
          fault.mode = mode;
          is_made = record_rounds(path, health, [](size_t) {});
        }
        ++points;
        if (!is_made) {
          EXPECT_FALSE(std::filesystem::exists(path));
          continue;
        }
        lost += health.lost_events;
        Reader reader(path);
        Ledger replayed;
        reader.replay(replayed);
        ASSERT_EQ(replayed.anomalies().total(), 0u) << replayed.anomalies().first();
        ASSERT_EQ(reader.event_count(), health.written_events);
        if (health.lost_events == 0) {
          ASSERT_EQ(read_events(reader), all_events());
        } else {
          ASSERT_FALSE(health.first_error.empty());
        }
      }
    }
  }
  EXPECT_GT(points, 30);
  EXPECT_GT(lost, 0u);
}

TEST(Faults, ProcessMayBeKilledAtEveryWrite) {
  const std::vector<Event> expected = all_events();
  auto* flushed = static_cast<std::atomic<size_t>*>(::mmap(nullptr, sizeof(std::atomic<size_t>),
                                                           PROT_READ | PROT_WRITE,
                                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(flushed, MAP_FAILED);
  int kills = 0;
  for (const SystemCall& call : kCalls) {
    const int count = count_calls(call);
    for (int point = 1; point <= count; point += stride()) {
      SCOPED_TRACE(std::string(call.name) + " " + std::to_string(point));
      const Folder folder;
      const std::string path = folder.file("run.tide");
      *flushed = 0;
      const pid_t child = ::fork();
      if (child == 0) {
        const Replaced replaced(call);
        fault.left = point;
        fault.mode = Mode::Kill;
        RecorderHealth health;
        record_rounds(path, health, [&](size_t events) { *flushed = events; });
        ::_exit(0);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      kills += WIFSIGNALED(status) ? 1 : 0;
      try {
        Reader reader(path);
        const std::vector<Event> read = read_events(reader);
        ASSERT_GE(read.size(), *flushed);
        ASSERT_LE(read.size(), expected.size());
        ASSERT_TRUE(std::equal(read.begin(), read.end(), expected.begin()));
      } catch (const Error& error) {  // killed before the tables existed
        ASSERT_EQ(*flushed, 0u) << error.what();
      }
    }
  }
  EXPECT_GT(kills, 10);
  ::munmap(flushed, sizeof(std::atomic<size_t>));
}

}  // namespace
}  // namespace tidegauge
