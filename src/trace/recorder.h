// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/events/event_sink.h"

namespace tidegauge {

struct RecorderOptions {
  bool overwrites = false;  ///< replaces a file that exists
  /// Events that may wait for the disk, 56 bytes each; what comes then is lost, and counted.
  size_t max_waiting_events = 512 * 1024;
  int64_t max_file_bytes = 0;  ///< 0: as large as the disk lets it become
  /// The longest that an event waits before it is written.
  int64_t max_delay_ns = 500'000'000;
  /// Goes into the table `run`, beside what the Recorder knows by itself (command, host, ...).
  std::map<std::string, std::string> facts{};
};

struct RecorderHealth {
  uint64_t written_events = 0;
  uint64_t lost_events = 0;
  std::string first_error;  ///< why events were lost first; empty if none were
};

/// Writes the events of one tracker to a trace file (docs/trace-format.md), from a thread of its
/// own, so that training waits neither for the disk nor for us.
///
///   training --> waiting events --> thread --> one transaction every half second, or sooner
///                (bounded)                     if many events wait
///
/// When the disk is full or too slow, events are lost up to the beginning of a later step, and
/// folded into what they come to in the end (trace/gap.h). How many is in `health` and in the
/// file. Nothing of that throws into training, and the file is whole at any moment: see
/// Note [Killed at any moment] in trace/writer.h.
///
/// A forked child has the object, but no thread: there all calls do nothing, and the file is left
/// to the parent.
///
/// Thread-safe.
class Recorder : public EventSink {
 public:
  /// IoError if the file cannot be made, or exists and is not to be overwritten.
  explicit Recorder(const std::string& path, const RecorderOptions& options = {});
  /// Closes.
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void record(const Event& event, const TensorFacts* first_tensor, StackId stack) noexcept override;
  void record_failure(const Event& event, const PostMortem& post_mortem) noexcept override;
  void name_module(ModuleId module, std::string_view name,
                   std::string_view class_name) noexcept override;
  void name_op(OpId op, std::string_view name) noexcept override;
  void name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept override;
  void count_optimizer_step(std::string_view class_name) noexcept override;
  void name_stack(StackId stack, std::string_view frames) noexcept override;
  void name_unit(UnitId unit, std::string_view name) noexcept override;
  void record_unit(const UnitEvent& event) noexcept override;

  /// Waits until all that was recorded before is in the file, or lost.
  void flush();
  /// Flushes and ends the file; later events are ignored.
  void close();

  RecorderHealth health() const;
  const std::string& path() const { return path_; }
  /// A tracker claims the recorder for its events. False if another one has it: two streams in one
  /// file would make no sense.
  bool claim();

 private:
  class Impl;
  bool is_in_child() const;

  const std::string path_;
  const uint64_t generation_;  // of forks
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
