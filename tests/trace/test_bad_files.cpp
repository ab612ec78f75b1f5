// SPDX-License-Identifier: BSD-3-Clause
// Any file is either read or reported with one clean error.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <random>

#include "analyze/summary.h"
#include "analyze/unit_summary.h"
#include "sealing.h"
#include "trace/checksum_vfs.h"
#include "trace_files.h"

namespace tidegauge {
namespace {

void execute(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                            trace::checksum_vfs()),
            SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

std::string complaint(const std::string& path) {
  return error_of<FormatError>([&] {
    Reader reader(path);
    read_events(reader);
  });
}

/// Reads everything. Any error but a FormatError or IoError fails the test.
void read_all(const std::string& path) {
  try {
    Reader reader(path);
    Ledger ledger;
    reader.replay(ledger);
    reader.run_facts();
    reader.event_count();
    reader.gaps();
    reader.modules();
    reader.ops();
    reader.storages_alive_at(100, 1000);
    reader.tensors();
    summarize(reader);
    reader.failures();
    summarize_units(reader);
  } catch (const FormatError& error) {
    EXPECT_TRUE(contains(error.what(), path)) << error.what();
  } catch (const IoError& error) {
    EXPECT_TRUE(contains(error.what(), path)) << error.what();
  }
}

/// Records a unit that owns all storages and is gathered repeatedly.
void record_with_units(const std::string& path, const std::vector<Event>& events) {
  Recorder recorder(path);
  recorder.name_unit(UnitId(1), "block");
  for (const Event& event : events) {
    recorder.record(event, nullptr, {});
    recorder.record_unit({.time_ns = event.time_ns,
                          .storage = event.storage,
                          .unit = UnitId(1),
                          .kind = static_cast<UnitEventKind>(event.storage.value % 6)});
  }
}

TEST(BadFiles, MissingAndForeignFilesAreReported) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  EXPECT_TRUE(contains(error_of<IoError>([&] { Reader reader(path); }), "No such file"));
  EXPECT_TRUE(contains(error_of<IoError>([&] { Reader reader(folder.file("")); }), "is a folder"));
  write_file(path, "");
  EXPECT_TRUE(contains(complaint(path), "is empty"));
  write_file(path, std::string(5000, 'x'));
  EXPECT_TRUE(contains(complaint(path), "not a tidegauge trace"));
  std::filesystem::remove(path);
  execute(path, "CREATE TABLE run (key)");
  EXPECT_TRUE(contains(complaint(path), "not a tidegauge trace"));
}

TEST(BadFiles, NewerMajorVersionIsRejectedAndNewerMinorIsRead) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  const std::vector<Event> events = random_events(1, 100);
  record(path, events);
  execute(path, "PRAGMA user_version=1999");
  Reader reader(path);
  EXPECT_EQ(read_events(reader), events);
  execute(path, "PRAGMA user_version=3000");
  EXPECT_TRUE(contains(complaint(path),
                       "is a trace of format 3; this version of tidegauge reads"
                       " up to 2"));
}

TEST(BadFiles, DamagedBatchIsReported) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record(path, random_events(1, 20'000));
  execute(path, "UPDATE batches SET checksum = checksum + 1 WHERE first_sequence = 8193");
  EXPECT_TRUE(contains(complaint(path), "the batch of event 8193"));
  Reader reader(path);
  EXPECT_EQ(read_events(reader, 1, 8192).size(), 8192);
  execute(path, "DELETE FROM batches WHERE first_sequence = 8193");
  EXPECT_TRUE(contains(complaint(path), "the batch of event 8193"));
}

/// All that a report reads, as one text; or the word "error".
std::string read_text(const std::string& path) {
  std::string text;
  const auto add = [&](const std::string& part) { text += part + "\n"; };
  try {
    Reader reader(path);
    for (const Event& event : read_events(reader)) {
      add(std::to_string(event.time_ns) + " " + std::to_string(event.size_bytes));
    }
    for (const auto& [key, value] : reader.run_facts()) add(key + value);
    for (const TraceModule& module : reader.modules()) add(module.name + module.class_name);
    for (const auto& [id, name] : reader.ops()) add(std::to_string(id.value) + name);
    for (const auto& [id, tensor] : reader.tensors()) add(tensor.dtype + tensor.shape);
    for (const auto& [id, name] : reader.units()) add(std::to_string(id.value) + name);
    for (const TraceUnitEvent& each : reader.unit_events()) add(std::to_string(each.sequence));
    for (const auto& [id, name] : reader.parameters()) add(std::to_string(id.value) + name);
    for (const auto& [id, frames] : reader.stacks()) add(frames);
    for (const TraceStorage& each : reader.storages_alive_at(500, 100)) {
      add(std::to_string(each.size_bytes) + each.op + each.dtype + each.parameter);
    }
    for (const TraceGap& gap : reader.gaps()) add(gap.reason);
  } catch (const Error&) {
    return "error";
  }
  return text;
}

TEST(BadFiles, FlippedBitIsNoticedInEveryTable) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record_with_units(path, random_events(1, 3000));
  const std::string whole = read_file(path);
  const std::string expected = read_text(path);
  ASSERT_NE(expected, "error");
  const std::string bad = folder.file("bad.tide");
  size_t noticed = 0;
  const size_t step = std::getenv("TIDEGAUGE_LONG") ? 13 : whole.size() * 8 / 1500;
  for (size_t bit = 0; bit < whole.size() * 8; bit += step) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    write_file(bad, bytes);
    const std::string found = read_text(bad);
    noticed += found == "error" ? 1 : 0;
    ASSERT_TRUE(found == "error" || found == expected) << "bit " << bit;
  }
  EXPECT_GT(noticed, 1000u);
}

TEST(BadFiles, MutatedAndTruncatedFilesGiveOnlyCleanErrors) {
  const Folder folder;
  const std::string path = folder.file("run.tide");
  record_with_units(path, random_events(1, 3000));
  const std::string whole = read_file(path);
  const std::string bad = folder.file("bad.tide");
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return random() % bound; };
  const int rounds = std::getenv("TIDEGAUGE_LONG") ? 20'000 : 400;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = whole;
    if (round % 4 == 0) bytes.resize(below(bytes.size()));
    for (size_t i = below(20); i-- > 0 && !bytes.empty();) {
      // Damage to page headers finds the most bugs.
      const size_t at =
          below(2) ? below(bytes.size()) : below(bytes.size() / 4096 + 1) * 4096 + below(120);
      if (at < bytes.size()) bytes[at] = static_cast<char>(random());
    }
    if (round % 3 == 0) seal(bytes);  // the damage passes the checksums
    write_file(bad, bytes);
    read_all(bad);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace tidegauge
