// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <string>

#include "allocator/alloc_config.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// The message for rejected settings, without the settings themselves.
std::string complaint(const std::string& text) {
  try {
    parse_alloc_config(text);
  } catch (const UsageError& error) {
    const std::string start = "allocator settings '" + text + "': ";
    const std::string what = error.what();
    return what.starts_with(start) ? what.substr(start.size()) : "unexpected: " + what;
  }
  return "accepted";
}

std::array<int64_t, 16> divisions(const std::string& value) {
  return parse_alloc_config("roundup_power2_divisions:" + value).roundup_power2_divisions;
}

TEST(AllocConfig, EmptyTextGivesTorchsDefaults) {
  EXPECT_EQ(parse_alloc_config(""), AllocConfig{});
  EXPECT_EQ(parse_alloc_config(" \t"), AllocConfig{});
}

TEST(AllocConfig, ReadsEveryKey) {
  const AllocConfig config = parse_alloc_config(
      "large_segment_size_mb:32, max_split_size_mb:40,max_non_split_rounding_mb:64,"
      "garbage_collection_threshold:0.6,expandable_segments:True,"
      "pinned_use_background_threads:True,pinned_max_round_threshold_mb:4,"
      "pinned_max_cached_size_mb:8,backend:cudaMallocAsync,release_lock_on_cudamalloc:True,"
      "pinned_use_cuda_host_register:True,graph_capture_record_stream_reuse:True,"
      "pinned_reserve_segment_size_mb:16,pinned_num_register_threads:8,"
      "per_process_memory_fraction:0.5,pinned_free_catch_all:True,throw_on_cudamalloc_oom:True,"
      "roundup_power2_divisions:4");
  AllocConfig expected;
  expected.large_segment_bytes = 32 * kMiB;
  expected.max_split_bytes = 40 * kMiB;
  expected.max_non_split_rounding_bytes = 64 * kMiB;
  expected.garbage_collection_threshold = 0.6;
  expected.expandable_segments = true;
  expected.pinned_use_background_threads = true;
  expected.pinned_max_round_threshold_bytes = 4 * kMiB;
  expected.pinned_max_cached_bytes = 8 * kMiB;
  expected.backend = "cudaMallocAsync";
  expected.release_lock_on_cudamalloc = true;
  expected.pinned_use_cuda_host_register = true;
  expected.graph_capture_record_stream_reuse = true;
  expected.pinned_reserve_segment_size_mb = 16;
  expected.pinned_num_register_threads = 8;
  expected.per_process_memory_fraction = 0.5;
  expected.pinned_free_catch_all = true;
  expected.throw_on_cudamalloc_oom = true;
  expected.roundup_power2_divisions.fill(4);
  EXPECT_EQ(config, expected);
}

TEST(AllocConfig, RocmNamesAreAliases) {
  EXPECT_TRUE(parse_alloc_config("release_lock_on_hipmalloc:True").release_lock_on_cudamalloc);
  EXPECT_TRUE(
      parse_alloc_config("pinned_use_hip_host_register:True").pinned_use_cuda_host_register);
}

TEST(AllocConfig, DivisionsByInterval) {
  // The first interval also sets all below it, > sets all above the last, gaps stay off.
  EXPECT_EQ(divisions("[64:8,256:4,>:1]"),
            (std::array<int64_t, 16>{8, 8, 8, 8, 8, 8, 8, 0, 4, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(divisions("[>:4]"),
            (std::array<int64_t, 16>{0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(divisions("[256:4,64:2]"),
            (std::array<int64_t, 16>{4, 4, 4, 4, 4, 4, 2, 4, 4, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(divisions("[131072:4]"), divisions("4"));
  EXPECT_EQ(divisions("[]"), (std::array<int64_t, 16>{}));
}

TEST(AllocConfig, ParsingAgainResetsTheSameSettingsAsTorch) {
  const AllocConfig first = parse_alloc_config(
      "large_segment_size_mb:32,expandable_segments:True,max_split_size_mb:64,"
      "garbage_collection_threshold:0.5,roundup_power2_divisions:2,max_non_split_rounding_mb:99");
  const AllocConfig second = parse_alloc_config("pinned_free_catch_all:True", first);
  EXPECT_TRUE(second.expandable_segments);
  EXPECT_EQ(second.large_segment_bytes, 32 * kMiB);
  EXPECT_EQ(second.max_split_bytes, kNoLimit);
  EXPECT_EQ(second.garbage_collection_threshold, 0);
  EXPECT_EQ(second.roundup_power2_divisions[3], 0);
  EXPECT_EQ(second.max_non_split_rounding_bytes, 32 * kMiB);
}

TEST(AllocConfig, MessagesEqualTorchs) {
  EXPECT_EQ(complaint("foo:1"), "Unrecognized key 'foo' in Accelerator allocator config.");
  EXPECT_EQ(complaint("max_split_size_mb:10"),
            "CachingAllocator option max_split_size_mb too small, must be >= 20");
  EXPECT_EQ(complaint("max_split_size_mb:40,large_segment_size_mb:50"),
            "CachingAllocator option max_split_size_mb too small, must be >= 50");
  EXPECT_EQ(complaint("max_non_split_rounding_mb:5"),
            "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20");
  EXPECT_EQ(complaint("large_segment_size_mb:10"),
            "CachingAllocator option large_segment_size_mb must be > 10 MB");
  EXPECT_EQ(complaint("garbage_collection_threshold:1.0"),
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  EXPECT_EQ(complaint("expandable_segments:true"),
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'");
  EXPECT_EQ(complaint("roundup_power2_divisions:3"),
            "For roundups, the divisions has to be power of 2 ");
  EXPECT_EQ(complaint("roundup_power2_divisions:[3:4]"),
            "For roundups, the intervals have to be power of 2 ");
  EXPECT_EQ(complaint("roundup_power2_divisions:[64:3]"),
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
  EXPECT_EQ(complaint("backend:foo"),
            "Unknown allocator backend, options are native and cudaMallocAsync");
  EXPECT_EQ(complaint("pinned_num_register_threads:3"),
            "Number of register threads has to be power of 2, got 3");
  EXPECT_EQ(complaint("pinned_num_register_threads:256"),
            "Number of register threads should be less than or equal to 128, got 256");
  EXPECT_EQ(complaint("pinned_reserve_segment_size_mb:0"),
            "Pinned reserve segment size has to be greater than 0");
  EXPECT_EQ(complaint("per_process_memory_fraction:1.5"),
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
}

TEST(AllocConfig, TerseMessagesOfTorchAreExplained) {
  EXPECT_EQ(complaint("max_split_size_mb:abc"), "stoull (expected a whole number, got 'abc')");
  EXPECT_EQ(complaint("garbage_collection_threshold:abc"), "stod (expected a number, got 'abc')");
  EXPECT_EQ(complaint("max_split_size_mb:"),
            "Index out of bounds in ConfigTokenizer (a value is missing)");
}

TEST(AllocConfig, IsAsLenientAsTorch) {
  EXPECT_EQ(parse_alloc_config("max_split_size_mb,40").max_split_bytes, 40 * kMiB);
  EXPECT_EQ(parse_alloc_config("max_split_size_mb:40x,").max_split_bytes, 40 * kMiB);
  // Parsed as the largest number: a limit that no request reaches.
  const int64_t wrapped = parse_alloc_config("max_split_size_mb:-5").max_split_bytes;
  EXPECT_GT(wrapped, int64_t{1} << 62);
  EXPECT_NE(wrapped, kNoLimit);
}

}  // namespace
}  // namespace tidegauge
