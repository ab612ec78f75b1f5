// SPDX-License-Identifier: BSD-3-Clause
// Every system call and every allocation of a recording fails once or fails from then on, and every
// system call is the last one of a process that is killed: the program goes on, the file stays
// readable, and losses are counted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <limits>
#include <new>

#include "trace/compaction.h"
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
Fault sync_fault;
Fault open_fault;
Fault memory_fault;
/// Allocations of this thread do not fail: it is the test, outside of the recorder.
thread_local bool is_exempt = false;

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

/// The file is readable, contradicts nothing, and says what is missing.
void expect_readable(const std::string& path, const RecorderHealth& health) {
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
        expect_readable(path, health);
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

/// Arms a fault that is not a system call of SQLite, until it is destroyed.
class Armed {
 public:
  Armed(Fault& which, Mode mode, int point) : which_(which) {
    which_.count = 0;
    which_.left = point;
    which_.mode = mode;
  }
  ~Armed() { which_.mode = Mode::Off; }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  Fault& which_;
};

TEST(Faults, EverySyncMayFail) {
  int count = 0;
  {
    const Folder folder;
    const Armed counted(sync_fault, Mode::Off, 0);
    RecorderHealth health;
    ASSERT_TRUE(record_rounds(folder.file("run.tide"), health, [](size_t) {}));
    count = sync_fault.count;
  }
  ASSERT_GT(count, kRounds);
  for (const Mode mode : {Mode::Once, Mode::FromThenOn}) {
    for (int point = 1; point <= count; ++point) {
      SCOPED_TRACE(std::to_string(point) + (mode == Mode::Once ? " once" : " from then on"));
      const Folder folder;
      const std::string path = folder.file("run.tide");
      RecorderHealth health;
      bool is_made = false;
      {
        const Armed armed(sync_fault, mode, point);
        is_made = record_rounds(path, health, [](size_t) {});
      }
      if (is_made) expect_readable(path, health);
    }
  }
}

/// Those of the writer and those of SQLite.
TEST(Faults, EveryOpenMayFail) {
  int count = 0;
  {
    const Folder folder;
    const Armed counted(open_fault, Mode::Off, 0);
    RecorderHealth health;
    ASSERT_TRUE(record_rounds(folder.file("run.tide"), health, [](size_t) {}));
    count = open_fault.count;
  }
  ASSERT_GE(count, 3);  // the writer's, SQLite's, and that of the journal
  int refusals = 0;
  for (const Mode mode : {Mode::Once, Mode::FromThenOn}) {
    for (int point = 1; point <= count; ++point) {
      SCOPED_TRACE(std::to_string(point) + (mode == Mode::Once ? " once" : " from then on"));
      const Folder folder;
      const std::string path = folder.file("run.tide");
      RecorderHealth health;
      bool is_made = false;
      {
        const Armed armed(open_fault, mode, point);
        is_made = record_rounds(path, health, [](size_t) {});
      }
      if (is_made) {
        expect_readable(path, health);
      } else {
        EXPECT_FALSE(std::filesystem::exists(path));
        ++refusals;
      }
    }
  }
  EXPECT_GE(refusals, 2);  // at least if the first one fails
}

/// The copy of a long run (compaction.h) is a second file: the trace stays, and no copy is left.
TEST(Faults, EveryOpenOfACopyMayFail) {
  std::vector<trace::CodedEvent> events;
  for (const Event& event : all_events()) events.push_back({.event = event});
  int copies = 0;
  int opens = 0;
  for (int point = 0; point <= opens; ++point) {
    SCOPED_TRACE(point);
    const Folder folder;
    const std::string path = folder.file("run.tide");
    trace::TraceWriter writer(path, false, 0, {}, trace::kVersionWithDrops);
    writer.write(events, {}, {}, nullptr, {});
    {
      const Armed armed(open_fault, point == 0 ? Mode::Off : Mode::Once, point);
      try {
        trace::Compaction compaction(writer, {.steps = 1}, 0);
        EXPECT_TRUE(compaction.advance(std::numeric_limits<int64_t>::max()));
        compaction.finish()->move_to(path);
        ++copies;
      } catch (const IoError&) {
      } catch (const trace::SqlError&) {
      }
      if (point == 0) opens = open_fault.count;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      EXPECT_FALSE(contains(entry.path().string(), "-kept")) << entry.path();
    }
    Reader reader(path);
    Ledger replayed;
    reader.replay(replayed);
    EXPECT_EQ(replayed.current().total_bytes(kCpu), kRounds * 100 * 512);
  }
  EXPECT_GE(opens, 3);
  EXPECT_LT(copies, opens);  // but the first one, and failures that SQLite can do without
}

/// Records like `record_rounds`, with a fault of memory after the file was made. Returns the number
/// of allocations.
int record_with_memory_fault(const std::string& path, Mode mode, int point,
                             RecorderHealth& health) {
  is_exempt = true;
  int count = 0;
  {
    Recorder recorder(path, {.max_delay_ns = 3'600'000'000'000, .prints_loss = false});
    const std::vector<Event> events = all_events();
    const Armed armed(memory_fault, mode, point);
    const size_t round = events.size() / kRounds;
    for (size_t i = 0; i < events.size(); ++i) {
      is_exempt = false;
      recorder.record(events[i], nullptr, {});
      if (i % 50 == 0) recorder.name_op(OpId(static_cast<uint32_t>(i)), "a long name of an op");
      if ((i + 1) % round == 0) recorder.flush();
      is_exempt = true;
    }
    recorder.close();
    count = memory_fault.count;
    memory_fault.mode = Mode::Off;
    health = recorder.health();
  }
  is_exempt = false;
  return count;
}

TEST(Faults, EveryAllocationMayFail) {
  RecorderHealth health;
  int count = 0;
  {
    const Folder folder;
    count = record_with_memory_fault(folder.file("run.tide"), Mode::Off, 0, health);
  }
  ASSERT_GT(count, 100);
  const uint64_t events = all_events().size();
  const int step = std::getenv("TIDEGAUGE_LONG") ? 1 : 1 + count / 60;
  uint64_t lost = 0;
  for (const Mode mode : {Mode::Once, Mode::FromThenOn}) {
    for (int point = 1; point <= count; point += step) {
      SCOPED_TRACE(std::to_string(point) + (mode == Mode::Once ? " once" : " from then on"));
      const Folder folder;
      const std::string path = folder.file("run.tide");
      record_with_memory_fault(path, mode, point, health);
      lost += health.lost_events;
      // A name that is missing counts as well.
      EXPECT_GE(health.written_events + health.lost_events, events);
      Reader reader(path);
      Ledger replayed;
      reader.replay(replayed);
      ASSERT_EQ(replayed.anomalies().total(), 0u) << replayed.anomalies().first();
      ASSERT_EQ(reader.event_count(), health.written_events);
    }
  }
  EXPECT_GT(lost, 0u);
}

}  // namespace
}  // namespace tidegauge

// SQLite's own allocations: malloc behind this table. Set before SQLite is used for the first time.
namespace {

sqlite3_mem_methods sqlite_memory;
// NOLINTNEXTLINE(bugprone-throwing-static-initialization): it does not throw
[[maybe_unused]] const bool is_sqlite_memory_replaced = [] {
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory);
  sqlite3_mem_methods replaced = sqlite_memory;
  replaced.xMalloc = [](int size) -> void* {
    const bool fails = !tidegauge::is_exempt && tidegauge::memory_fault.strikes();
    return fails ? nullptr : sqlite_memory.xMalloc(size);
  };
  return sqlite3_config(SQLITE_CONFIG_MALLOC, &replaced) == SQLITE_OK;
}();

int sync_or_fail(int file) {
  return tidegauge::sync_fault.strikes() ? -1 : static_cast<int>(::syscall(SYS_fsync, file));
}

int open_or_fail(const char* path, int flags, std::va_list rest) {
  if (tidegauge::open_fault.strikes()) return -1;
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // namespace

// They replace those of the C library and of C++ in this program.
extern "C" int fsync(int file) { return sync_or_fail(file); }
extern "C" int fdatasync(int file) { return sync_or_fail(file); }
extern "C" int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const int file = open_or_fail(path, flags, rest);
  va_end(rest);
  return file;
}
extern "C" int open64(const char* path, int flags, ...) {  // SQLite's
  std::va_list rest;
  va_start(rest, flags);
  const int file = open_or_fail(path, flags, rest);
  va_end(rest);
  return file;
}

// Not inlined: GCC would warn of a `free` of what `new` returned.
[[gnu::noinline]] void* operator new(size_t size) {
  if (!tidegauge::is_exempt && tidegauge::memory_fault.strikes()) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);  // of std::stable_sort, which can do without
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
