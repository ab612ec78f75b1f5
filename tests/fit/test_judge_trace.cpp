// SPDX-License-Identifier: BSD-3-Clause
// `judge` of a trace file: the choice of the device and the facts of the run.
#include <gtest/gtest.h>

#include "core/events/event_factory.h"
#include "fit/judge.h"
#include "tidegauge/errors.h"
#include "tidegauge/fit.h"
#include "trace/trace_files.h"

namespace tidegauge {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

/// A run of two ranks with 12 MiB on a GPU and 100 MiB on the CPU.
std::string record_run(const Folder& folder) {
  const auto born = [](uint64_t id, int64_t bytes, Device device) {
    return events::storage_born({0, {}, device}, StorageId(id), bytes);
  };
  const std::string path = folder.file("run.tide");
  record(path, {born(1, 12 * kMebibyte, cuda(0)), born(2, 100 * kMebibyte, kCpu)},
         {.facts = {{"world_size", "2"}}});
  return path;
}

TEST(JudgeTrace, UsesTheGpuAndTheRanksOfTheRun) {
  const Folder folder;
  const Verdict verdict = judge(record_run(folder), {.alloc_conf = ""});
  EXPECT_EQ(verdict.traced_device, "cuda:0");
  EXPECT_EQ(verdict.needed_bytes, (12 + 500 + 512) * kMebibyte + 2 * 8'519'680);
  EXPECT_EQ(verdict.layers.front().basis, Basis::Measured);
  EXPECT_EQ(verdict.smallest->key, "t4");
}

TEST(JudgeTrace, UsesTheNamedDevice) {
  const Folder folder;
  FitOptions options;
  options.traced_device = "cpu";
  EXPECT_EQ(judge(record_run(folder), options).layers.front().size_bytes, 100 * kMebibyte);
  options.traced_device = "cuda:1";
  EXPECT_THROW(judge(record_run(folder), options), Error);
}

TEST(JudgeTrace, SaysOnWhichDevicesARunFits) {
  const Folder folder;
  const std::string path = record_run(folder);
  FitOptions options;
  options.device = *find_device("h100-80g");
  EXPECT_EQ(to_string(*judge(path, options).fit), "fits");
  options.device->memory_bytes = 200 * kMebibyte;
  EXPECT_EQ(to_string(*judge(path, options).fit), "does not fit");
}

TEST(JudgeTrace, InvalidFileIsReported) {
  const Folder folder;
  EXPECT_THROW(judge(folder.file("none.tide")), IoError);
  write_file(folder.file("text.tide"), "no trace");
  EXPECT_THROW(judge(folder.file("text.tide")), FormatError);
}

TEST(JudgeTrace, TieRuleIsThatOfTheRecordedTorchUnlessTheCallerNamesOne) {
  EXPECT_EQ(choose_tie_rule({}, {{"torch_version", "2.11.0"}}), TieRule::Address);
  EXPECT_EQ(choose_tie_rule({}, {{"torch_version", "2.12.1"}}), TieRule::PrivateCounter);
  EXPECT_EQ(choose_tie_rule({}, {}), TieRule::SegmentCounter);
  EXPECT_EQ(choose_tie_rule("counter", {{"torch_version", "2.11.0"}}), TieRule::SegmentCounter);
  EXPECT_THROW(choose_tie_rule("chance", {}), UsageError);
}

}  // namespace
}  // namespace tidegauge
