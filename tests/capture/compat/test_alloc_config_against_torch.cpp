// SPDX-License-Identifier: BSD-3-Clause
// Compares our parser of allocator settings with that of the installed torch. A torch build without
// CUDA parses the keys that all accelerators share and skips all others, even if they are wrong.
#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/alloc_config.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

using TorchConfig = c10::CachingAllocator::AcceleratorAllocatorConfig;

constexpr const char* kDefaults =
    "large_segment_size_mb:20,expandable_segments:False,pinned_use_background_threads:False,"
    "pinned_max_round_threshold_mb:17592186044415,pinned_max_cached_size_mb:17592186044415";

// Torch's numbers are unsigned, ours are signed.
int64_t clamped(size_t bytes) {
  if (bytes == std::numeric_limits<size_t>::max()) return kNoLimit;
  return static_cast<int64_t>(std::min<size_t>(bytes, kNoLimit / kMiB * kMiB));
}

/// The settings as one line, or the error message.
std::string describe(const AllocConfig& config) {
  std::ostringstream text;
  text << config.large_segment_bytes << ' ' << config.max_split_bytes << ' '
       << config.max_non_split_rounding_bytes << ' ' << config.garbage_collection_threshold << ' '
       << config.expandable_segments << ' ' << config.pinned_use_background_threads << ' '
       << config.pinned_max_round_threshold_bytes << ' ' << config.pinned_max_cached_bytes << " |";
  for (const int64_t divisions : config.roundup_power2_divisions) text << ' ' << divisions;
  return text.str();
}

std::string torch_reads(const std::string& text) {
  TorchConfig::instance().parseArgs(kDefaults);
  try {
    c10::CachingAllocator::setAllocatorSettings(text);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  AllocConfig config;
  config.large_segment_bytes = clamped(TorchConfig::large_segment_size());
  config.max_split_bytes = clamped(TorchConfig::max_split_size());
  config.max_non_split_rounding_bytes = clamped(TorchConfig::max_non_split_rounding_size());
  config.garbage_collection_threshold = TorchConfig::garbage_collection_threshold();
  config.expandable_segments = TorchConfig::use_expandable_segments();
  config.pinned_use_background_threads = TorchConfig::pinned_use_background_threads();
  config.pinned_max_round_threshold_bytes = clamped(TorchConfig::pinned_max_round_threshold());
  config.pinned_max_cached_bytes = clamped(TorchConfig::pinned_max_cached_size());
  for (size_t i = 0; i < config.roundup_power2_divisions.size(); ++i) {
    config.roundup_power2_divisions[i] =
        static_cast<int64_t>(TorchConfig::roundup_power2_divisions()[i]);
  }
  return describe(config);
}

/// True if torch has CUDA, which then also parses the settings.
bool has_cuda() { return TorchConfig::getConfigParserHook() != nullptr; }

void expect_same(const std::string& text) {
  SCOPED_TRACE("'" + text + "'");
  const std::string expected = torch_reads(text);
  try {
    EXPECT_EQ(describe(parse_alloc_config(text, parse_alloc_config(kDefaults))), expected);
  } catch (const UsageError& error) {
    // Our message names the setting first and may add an explanation. Torch's assertions begin with
    // the failed condition.
    std::string what = error.what();
    what.erase(0, what.find("': ") + 3);
    if (what.starts_with("Unrecognized key") && !has_cuda()) return;
    const size_t explanation = what.find(" (");
    if (explanation != std::string::npos && what.find("set it in") == std::string::npos) {
      what.resize(explanation);
    }
    EXPECT_NE(expected.find(what), std::string::npos) << what << "\n" << expected;
  }
}

TEST(AllocConfigAgainstTorch, ValuesAndMessagesEqualTorchs) {
  for (const char* text : {"",
                           "max_split_size_mb:10",
                           "max_split_size_mb",
                           "max_split_size_mb:",
                           "max_split_size_mb:abc",
                           "max_split_size_mb:-5",
                           "max_split_size_mb:40,",
                           "max_split_size_mb=40",
                           ",",
                           "max_split_size_mb:40x",
                           "max_split_size_mb:[40]",
                           "max_split_size_mb,40",
                           "max_split_size_mb 40",
                           "max_split_size_mb:40:50",
                           "max_split_size_mb:18446744073709551616",
                           "max_split_size_mb:18446744073709551615",
                           "garbage_collection_threshold:1.0",
                           "garbage_collection_threshold:0",
                           "garbage_collection_threshold:0.5x",
                           "garbage_collection_threshold:nan",
                           "expandable_segments:true",
                           "expandable_segments:True",
                           "expandable_segments",
                           "roundup_power2_divisions:3",
                           "roundup_power2_divisions:0",
                           "roundup_power2_divisions:[3:4]",
                           "roundup_power2_divisions:[64:3]",
                           "roundup_power2_divisions:[64:8,256:4",
                           "roundup_power2_divisions:[64:8,256:4,>:1]",
                           "roundup_power2_divisions:[64:8 256:4]",
                           "roundup_power2_divisions:[]",
                           "roundup_power2_divisions:[>:4,64:2]",
                           "roundup_power2_divisions:[64:8,]",
                           "roundup_power2_divisions:[131072:4]",
                           "roundup_power2_divisions:[64]",
                           "roundup_power2_divisions:[256:4,64:2]",
                           "large_segment_size_mb:10",
                           "large_segment_size_mb:11",
                           "max_non_split_rounding_mb:5",
                           "large_segment_size_mb:50,max_split_size_mb:40",
                           "max_split_size_mb:40,large_segment_size_mb:50",
                           "pinned_use_background_threads:yes",
                           "pinned_max_round_threshold_mb:4",
                           "foo:1",
                           "foo",
                           "max_split_size_mb:40,foo"}) {
    expect_same(text);
  }
}

TEST(AllocConfigAgainstTorch, KeysOfCudaHaveTheSameErrors) {
  if (!has_cuda()) GTEST_SKIP() << "this torch has no CUDA";
  for (const char* text :
       {"backend:foo", "backend", "release_lock_on_cudamalloc:yes",
        "pinned_use_cuda_host_register:1", "pinned_num_register_threads:3",
        "pinned_num_register_threads:256", "pinned_reserve_segment_size_mb:0",
        "graph_capture_record_stream_reuse:true", "per_process_memory_fraction:1.5",
        "per_process_memory_fraction:-1", "pinned_free_catch_all:", "throw_on_cudamalloc_oom:2",
        "throw_on_cudamalloc_oom:True,foo:1", "roundup_power2_divisions:[64]8,foo:1]"}) {
    EXPECT_EQ(torch_reads(text).find(" |"), std::string::npos) << "torch accepts " << text;
    expect_same(text);
  }
}

TEST(AllocConfigAgainstTorch, EveryKeyOfTorchIsKnown) {
  for (const std::string& key : TorchConfig::getKeys()) {
    try {
      parse_alloc_config(key + ":x");
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find("Unrecognized key"), std::string::npos) << key;
    }
  }
}

TEST(AllocConfigAgainstTorch, RandomSettings) {
  const std::vector<std::string> keys = {
      "large_segment_size_mb",         "max_split_size_mb",
      "max_non_split_rounding_mb",     "garbage_collection_threshold",
      "roundup_power2_divisions",      "expandable_segments",
      "pinned_use_background_threads", "pinned_max_round_threshold_mb",
      "pinned_max_cached_size_mb"};
  const std::vector<std::string> values = {"0",
                                           "1",
                                           "4",
                                           "16",
                                           "20",
                                           "32",
                                           "40",
                                           "0.5",
                                           "True",
                                           "False",
                                           "x",
                                           "[1:2,>:4]",
                                           "[64:8,256:4,>:1]",
                                           "[",
                                           "]",
                                           "[>:2]",

                                           ""};
  const std::vector<std::string> ends = {",", ",", ",", ",", ",", " , ", ":", "", ",,"};
  std::mt19937 random(7);
  const auto any = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (uint32_t n = random() % 4; n > 0; --n) {
      text.append(any(keys)).append(random() % 30 == 0 ? "" : ":");
      text.append(any(values)).append(any(ends));
    }
    expect_same(text);
    if (HasFailure()) return;
    accepted += torch_reads(text).find(" |") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(accepted, 300) << "nearly all settings were rejected, so the test proves little";
  TorchConfig::instance().parseArgs(kDefaults);
}

}  // namespace
}  // namespace tidegauge
