// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/events/event_sink.h"
#include "trace/keep.h"

namespace tidegauge {

struct RecorderOptions {
  bool overwrites = false;  ///< replace an existing file
  /// How many events may wait for the disk, 56 bytes each. Further events are lost and counted.
  size_t max_waiting_events = 512 * 1024;
  int64_t max_file_bytes = 0;  ///< 0: no limit
  /// If limited, older events are dropped, except those around the peaks (trace/compaction.h).
  trace::Keep keep{};
  /// The longest time that an event waits until it is written.
  int64_t max_delay_ns = 250'000'000;
  /// Prints a line to stderr when the first event is lost.
  bool prints_loss = true;
  /// Written to the table `run`, together with the facts that the Recorder adds (command, host,
  /// ...).
  std::map<std::string, std::string> facts{};
};

struct RecorderHealth {
  uint64_t written_events = 0;
  uint64_t lost_events = 0;
  std::string first_error;      ///< why the first events were lost; empty if none were
  std::string advice;           ///< what helps against that
  uint64_t dropped_events = 0;  ///< of the written ones, because of RecorderOptions::keep
};

/// Writes the events of one tracker to a trace file (docs/trace-format.md) from its own thread, so
/// that training never waits for the disk.
///
///   training --> waiting events --> thread --> one transaction every quarter of a second, or
///                (bounded)                     sooner if many events wait
///
/// When the disk is full or too slow, events are lost until a later step begins, and are combined
/// into their net effect (trace/gap.h). `health` and the file contain the number of lost events.
/// Training never gets an exception from this, and the file is valid at any moment: see Note
/// [Killed at any moment] in trace/writer.h.
///
/// After a fork, the child has the object but no thread. There all calls have no effect, and the
/// file belongs to the parent.
///
/// Thread-safe.
class Recorder : public EventSink {
 public:
  /// IoError if the file cannot be created, or exists and `overwrites` is false.
  explicit Recorder(const std::string& path, const RecorderOptions& options = {});
  /// Calls `close`.
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
  void set_fact(std::string_view key, std::string_view value) noexcept override;
  void record_unit(const UnitEvent& event) noexcept override;

  /// Waits until all events recorded so far are in the file or lost.
  void flush();
  /// Flushes and completes the file. Later events are ignored.
  void close();

  /// Closes all recorders of this process, which is about to end; `ended_by` becomes a fact.
  static void close_all(std::string_view ended_by);

  RecorderHealth health() const;
  const std::string& path() const { return path_; }

 private:
  class Impl;
  bool is_in_child() const;
  template <typename Name>
  void name(Name change) noexcept;
  template <typename Record>
  void add(Record record) noexcept;

  const std::string path_;
  const uint64_t generation_;  // the number of forks when it was created
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidegauge
