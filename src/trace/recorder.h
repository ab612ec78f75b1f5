// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/events/event_sink.h"

namespace tidegauge {

struct RecorderOptions {
  bool overwrites = false;  ///< replace an existing file
  /// Events that may wait for the disk, 56 bytes each; further events are lost, and counted.
  size_t max_waiting_events = 512 * 1024;
  int64_t max_file_bytes = 0;  ///< 0: no limit but the disk's
  /// The longest time that an event waits before it is written.
  int64_t max_delay_ns = 500'000'000;
  /// Goes into the table `run`, beside the facts that the Recorder adds (command, host, ...).
  std::map<std::string, std::string> facts{};
};

struct RecorderHealth {
  uint64_t written_events = 0;
  uint64_t lost_events = 0;
  std::string first_error;  ///< why the first events were lost; empty if none were
};

/// Writes the events of one tracker to a trace file (docs/trace-format.md) from its own thread, so
/// that training never waits for the disk.
///
///   training --> waiting events --> thread --> one transaction every half second, or sooner
///                (bounded)                     if many events wait
///
/// When the disk is full or too slow, events are lost up to the beginning of a later step, and
/// folded into their net effect (trace/gap.h). `health` and the file say how many. None of this
/// throws into training, and the file is valid at any moment: see Note [Killed at any moment] in
/// trace/writer.h.
///
/// A forked child has the object but no thread: there all calls do nothing, and the file stays the
/// parent's.
///
/// Thread-safe.
class Recorder : public EventSink {
 public:
  /// IoError if the file cannot be created, or exists and `overwrites` is false.
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

  /// Waits until all events recorded before are in the file, or lost.
  void flush();
  /// Flushes and completes the file; later events are ignored.
  void close();

  RecorderHealth health() const;
  const std::string& path() const { return path_; }
  /// A tracker reserves the recorder for its events. False if another tracker has it: a file holds
  /// one stream.
  bool reserve();

 private:
  class Impl;
  bool is_in_child() const;

  const std::string path_;
  const uint64_t generation_;  // of forks
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
