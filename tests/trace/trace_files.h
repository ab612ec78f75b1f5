// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"
#include "core/ledger/random_stream.h"
#include "tidegauge/errors.h"
#include "trace/reader.h"
#include "trace/recorder.h"

namespace tidegauge {

/// A temporary folder, removed with the object.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tidegauge_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() {
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<Event> random_events(uint64_t seed, int count) {
  Stream stream(seed, seed % 3 == 0);
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) events.push_back(stream.next());
  return events;
}

inline void record(const std::string& path, const std::vector<Event>& events,
                   const RecorderOptions& options = {}) {
  Recorder recorder(path, options);
  for (const Event& event : events) recorder.record(event, nullptr, {});
}

inline Ledger apply_all(const std::vector<Event>& events) {
  Ledger ledger;
  for (const Event& event : events) ledger.apply(event);
  return ledger;
}

inline std::vector<Event> read_events(Reader& reader, uint64_t first = 1,
                                      uint64_t last = UINT64_MAX) {
  std::vector<Event> events;
  reader.visit_events(first, last, [&](const Event& event, uint64_t) { events.push_back(event); });
  return events;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// The message of the error that `body` throws.
template <typename Error, typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no such error";
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tidegauge
