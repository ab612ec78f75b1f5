// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/alloc_config.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <span>
#include <stdexcept>
#include <vector>

#include "core/util/quote.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

constexpr uint64_t kMostRegisterThreads = 128;

/// The words of the text. torch accepts any separator, so `max_split_size_mb,40` means the same as
/// with a colon, but it does require the word after it.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) words_.push_back(std::move(word));
      word.clear();
    };
    for (const char c : text) {
      if (c == ',' || c == ':' || c == '[' || c == ']') {
        end_word();
        words_.emplace_back(1, c);
      } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      }
    }
    end_word();
  }

  size_t size() const { return words_.size(); }

  const std::string& at(size_t i) const {
    if (i >= size()) fail("Index out of bounds in ConfigTokenizer (a value is missing)");
    return words_[i];
  }

  /// Parsed by std::stoull, as in torch: `40x` is 40 and `-1` is the largest number.
  uint64_t number(size_t i) const {
    const std::string& word = at(i);
    try {
      return std::stoull(word);
    } catch (const std::logic_error& error) {
      fail(std::string(error.what()) + " (expected a whole number, got " + quote(word) + ")");
    }
  }

  double real(size_t i) const {
    const std::string& word = at(i);
    try {
      return std::stod(word);
    } catch (const std::logic_error& error) {
      fail(std::string(error.what()) + " (expected a number, got " + quote(word) + ")");
    }
  }

  bool truth(size_t i) const {
    const std::string& word = at(i);
    if (word != "True" && word != "False") {
      fail("Expected 'True' or 'False' at index " + std::to_string(i) +
           " in ConfigTokenizer but got " + quote(word));
    }
    return word == "True";
  }

  /// The index of the last word that belongs to the key at `i`.
  size_t skip_value(size_t i) const {
    i += 2;
    if (at(i) != "[") return i;
    while (++i < size() && words_[i] != "]") {
    }
    if (i >= size()) {
      fail("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return i;
  }

  [[noreturn]] void fail(const std::string& complaint) const {
    throw UsageError("allocator settings " + quote(text_) + ": " + complaint);
  }

 private:
  std::string text_;
  std::vector<std::string> words_;
};

int64_t mebibytes(uint64_t count) {
  return static_cast<int64_t>(std::min<uint64_t>(count, kNoLimit / kMiB)) * kMiB;
}

int64_t read_large_segment(const Words& words, size_t i) {
  const uint64_t value = words.number(i);
  if (value <= 10) words.fail("CachingAllocator option large_segment_size_mb must be > 10 MB");
  if (value > kMaxPageBytes / kMiB) {
    words.fail("large_segment_size_mb must be at most " + std::to_string(kMaxPageBytes / kMiB));
  }
  return mebibytes(value);
}

int64_t read_at_least_a_segment(const Words& words, size_t i, const AllocConfig& config) {
  const auto least = static_cast<uint64_t>(config.large_segment_bytes / kMiB);
  const uint64_t value = words.number(i);
  if (value < least) {
    words.fail("CachingAllocator option " + words.at(i - 2) +
               " too small, must be >= " + std::to_string(least));
  }
  return mebibytes(value);
}

/// Returns the index of the last word read.
size_t read_divisions(const Words& words, size_t i, AllocConfig& config) {
  auto& table = config.roundup_power2_divisions;
  i += 2;
  if (words.at(i) != "[") {
    const uint64_t value = words.number(i);
    if (!std::has_single_bit(value)) {
      words.fail("For roundups, the divisions has to be power of 2 ");
    }
    table.fill(static_cast<int64_t>(value));
    return i;
  }
  bool is_first = true;
  size_t last = 0;
  while (++i < words.size() && words.at(i) != "]") {
    const size_t key = i;
    i += 2;
    const uint64_t value = words.number(i);
    if (value != 0 && !std::has_single_bit(value)) {
      words.fail("For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    }
    if (words.at(key) == ">") {
      std::fill(table.begin() + static_cast<ptrdiff_t>(last) + 1, table.end(),
                static_cast<int64_t>(value));
    } else {
      const uint64_t interval = words.number(key);
      if (!std::has_single_bit(interval)) {
        words.fail("For roundups, the intervals have to be power of 2 ");
      }
      last = std::min<size_t>(static_cast<size_t>(std::countr_zero(interval)), table.size() - 1);
      // The first interval also sets all below it; unnamed intervals in between keep their values.
      if (is_first) {
        std::fill(table.begin(), table.begin() + static_cast<ptrdiff_t>(last),
                  static_cast<int64_t>(value));
      }
      is_first = false;
      table[last] = static_cast<int64_t>(value);
    }
    if (words.at(i + 1) != "]") ++i;
  }
  if (i >= words.size()) {
    words.fail("Expected closing bracket ']' in ConfigTokenizer but reached end of config");
  }
  return i;
}

double read_threshold(const Words& words, size_t i) {
  const double value = words.real(i);
  if (!(value > 0 && value < 1)) {
    words.fail("garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
  }
  return value;
}

int64_t read_register_threads(const Words& words, size_t i) {
  const uint64_t value = words.number(i);
  if (!std::has_single_bit(value)) {
    words.fail("Number of register threads has to be power of 2, got " + std::to_string(value));
  }
  if (value > kMostRegisterThreads) {
    words.fail("Number of register threads should be less than or equal to " +
               std::to_string(kMostRegisterThreads) + ", got " + std::to_string(value));
  }
  return static_cast<int64_t>(value);
}

double read_fraction(const Words& words, size_t i) {
  const double value = words.real(i);
  if (!(value >= 0 && value <= 1)) {
    words.fail("per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
  }
  return value;
}

const std::string& read_backend(const Words& words, size_t i) {
  const std::string& name = words.at(i);
  if (name != "native" && name != "cudaMallocAsync") {
    words.fail("Unknown allocator backend, options are native and cudaMallocAsync");
  }
  return name;
}

int64_t read_reserve_segment(const Words& words, size_t i) {
  const uint64_t value = words.number(i);
  if (value == 0) words.fail("Pinned reserve segment size has to be greater than 0");
  return static_cast<int64_t>(std::min<uint64_t>(value, kNoLimit));
}

/// A setting and how to read its value, which is word `i`.
struct Key {
  std::string_view name;
  void (*read)(const Words& words, size_t i, AllocConfig& config);
};

void ignore(const Words& /*words*/, size_t /*i*/, AllocConfig& /*config*/) {}

/// Keys of all accelerators.
constexpr Key kCommonKeys[] = {
    {"large_segment_size_mb", ignore},     // read before the others
    {"roundup_power2_divisions", ignore},  // the only list
    {"max_split_size_mb",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.max_split_bytes = read_at_least_a_segment(words, i, config);
     }},
    {"max_non_split_rounding_mb",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.max_non_split_rounding_bytes = read_at_least_a_segment(words, i, config);
     }},
    {"garbage_collection_threshold",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.garbage_collection_threshold = read_threshold(words, i);
     }},
    {"expandable_segments",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.expandable_segments = words.truth(i);
     }},
    {"pinned_use_background_threads",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_use_background_threads = words.truth(i);
     }},
    {"pinned_max_round_threshold_mb",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_max_round_threshold_bytes = mebibytes(words.number(i));
     }},
    {"pinned_max_cached_size_mb",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_max_cached_bytes = mebibytes(words.number(i));
     }},
};

void read_lock_release(const Words& words, size_t i, AllocConfig& config) {
  config.release_lock_on_cudamalloc = words.truth(i);
}

void read_host_register(const Words& words, size_t i, AllocConfig& config) {
  config.pinned_use_cuda_host_register = words.truth(i);
}

/// Keys of CUDA alone.
constexpr Key kCudaKeys[] = {
    {"backend", [](const Words& words, size_t i,
                   AllocConfig& config) { config.backend = read_backend(words, i); }},
    {"release_lock_on_cudamalloc", read_lock_release},
    {"release_lock_on_hipmalloc", read_lock_release},
    {"pinned_use_cuda_host_register", read_host_register},
    {"pinned_use_hip_host_register", read_host_register},
    {"pinned_num_register_threads",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_num_register_threads = read_register_threads(words, i);
     }},
    {"pinned_reserve_segment_size_mb",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_reserve_segment_size_mb = read_reserve_segment(words, i);
     }},
    {"graph_capture_record_stream_reuse",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.graph_capture_record_stream_reuse = words.truth(i);
     }},
    {"per_process_memory_fraction",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.per_process_memory_fraction = read_fraction(words, i);
     }},
    {"pinned_free_catch_all",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.pinned_free_catch_all = words.truth(i);
     }},
    {"throw_on_cudamalloc_oom",
     [](const Words& words, size_t i, AllocConfig& config) {
       config.throw_on_cudamalloc_oom = words.truth(i);
     }},
    // Not simulated: how many addresses a segment reserves. torch only logs a wrong value.
    {"expandable_segments_reserve", ignore},
    {"expandable_segments_reserve_by_class", ignore},
};

/// The key of this name, or nullptr.
const Key* find_key(std::span<const Key> keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

void check_known(const Words& words, const std::string& name, std::string_view part) {
  if (find_key(kCommonKeys, name) == nullptr && find_key(kCudaKeys, name) == nullptr) {
    words.fail("Unrecognized key " + quote(name) + " in " + std::string(part) +
               " allocator config.");
  }
}

/// Skips the keys of CUDA: read_cuda() reads them.
void read_common(const Words& words, AllocConfig& config) {
  // Read first, wherever it stands, because other limits are checked against it.
  for (size_t i = 0; i < words.size(); ++i) {
    if (words.at(i) == "large_segment_size_mb") {
      config.large_segment_bytes = read_large_segment(words, i + 2);
    }
  }
  config.max_split_bytes = kNoLimit;
  config.max_non_split_rounding_bytes = config.large_segment_bytes;
  config.garbage_collection_threshold = 0;
  config.roundup_power2_divisions.fill(0);
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string& name = words.at(i);
    if (name == "roundup_power2_divisions") {
      i = read_divisions(words, i, config);
      continue;
    }
    check_known(words, name, "Accelerator");
    if (const Key* key = find_key(kCommonKeys, name)) key->read(words, i + 2, config);
    i = words.skip_value(i);
  }
}

void read_cuda(const Words& words, AllocConfig& config) {
  for (size_t i = 0; i < words.size(); i += 2) {
    const std::string& name = words.at(i);
    // Again, because torch finds the end of a list in another way here.
    check_known(words, name, "CUDA");
    if (const Key* key = find_key(kCudaKeys, name)) key->read(words, i + 2, config);
    i = words.skip_value(i);
  }
}

}  // namespace

AllocConfig parse_alloc_config(std::string_view text, const AllocConfig& previous) {
  const Words words(text);
  AllocConfig config = previous;
  read_common(words, config);
  read_cuda(words, config);
  return config;
}

}  // namespace tidegauge
