// SPDX-License-Identifier: BSD-3-Clause
#include "trace/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <semaphore>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/util/spin_lock.h"
#include "trace/gap.h"
#include "trace/run_facts.h"
#include "trace/tensor_ids.h"
#include "trace/writer.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::Gap;
using trace::Names;
using trace::PlacedUnitEvent;
using trace::TraceWriter;

std::atomic<uint64_t> fork_generation{1};

uint64_t current_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++fork_generation; });
  static_cast<void>(registered);
  return fork_generation.load(std::memory_order_relaxed);
}

/// Events and names that wait for the writing thread.
struct Waiting {
  std::optional<Gap> gap_before;
  std::vector<CodedEvent> events;
  std::vector<PlacedUnitEvent> units;
  Names names;
  bool is_closing = false;
  uint64_t flush_ticket = 0;  // the last flush that was requested
};

constexpr size_t kWakeEvents = 16 * 1024;

/// Why events are lost, and what helps.
struct Loss {
  std::string reason;
  std::string advice;
};

Loss explain(const std::exception& error, bool is_replaced) {
  if (is_replaced) {
    return {"the file was deleted or replaced, perhaps by another process that records to it",
            "give each process a file of its own"};
  }
  const auto* sql = dynamic_cast<const trace::SqlError*>(&error);
  const int code = sql != nullptr ? sql->code : 0;
  if (code == SQLITE_FULL) return {error.what(), "record to a larger disk to have them all"};
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    return {error.what(), "do not open the file for writing while it is recorded"};
  }
  return {error.what(), "check the disk of the file"};
}

/// All recorders of the process.
struct Living {
  std::mutex mutex;
  std::vector<Recorder*> recorders;
};
Living& living() {
  static auto* all = new Living;
  return *all;
}

}  // namespace

class Recorder::Impl {
 public:
  Impl(const std::string& path, const RecorderOptions& options)
      : options_(options),
        path_(path),
        writer_(path, options.overwrites, options.max_file_bytes,
                trace::read_run_facts(options.facts)) {
    waiting_.events.reserve(2 * kWakeEvents);
    taken_.events.reserve(2 * kWakeEvents);
    thread_ = std::thread([this] { run(); });
  }

  void record(const Event& event, const TensorFacts* first_tensor, StackId stack) {
    bool is_due = false;
    {
      const std::lock_guard lock(lock_);
      if (waiting_.is_closing) return;
      CodedEvent traced{.event = event, .stack = stack.value};
      if (first_tensor != nullptr) traced.tensor = tensors_.intern(*first_tensor, waiting_.names);
      is_due = add(traced);
    }
    if (is_due) wake_.release();
  }

  void record_failure(const Event& event, const PostMortem& post_mortem) {
    {
      const std::lock_guard lock(lock_);
      if (waiting_.is_closing) return;
      waiting_.names.failures[++failure_count_] = post_mortem;
      add({.event = event, .tensor = failure_count_});
    }
    wake_.release();  // the process may not live for long
  }

  void record_unit(const UnitEvent& event) {
    const std::lock_guard lock(lock_);
    if (waiting_.is_closing) return;
    if (gap_.is_empty()) {
      waiting_.units.push_back({event, waiting_.events.size()});
    } else {
      gap_.add(event);
    }
  }

  void count_lost() { ++lost_events_; }

  template <typename Change>
  void name(Change change) {
    const std::lock_guard lock(lock_);
    if (!waiting_.is_closing) change(waiting_.names);
  }

  void flush() {
    uint64_t ticket = 0;
    {
      const std::lock_guard lock(lock_);
      if (waiting_.is_closing) return;
      ticket = ++waiting_.flush_ticket;
    }
    wake_.release();
    std::unique_lock lock(done_mutex_);
    done_.wait(lock, [&] { return done_ticket_ >= ticket || is_ended_; });
  }

  void close() {
    const std::lock_guard once(close_mutex_);
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(lock_);
      waiting_.is_closing = true;
    }
    wake_.release();
    thread_.join();
  }

  RecorderHealth health() {
    const std::lock_guard lock(done_mutex_);
    RecorderHealth health{written_events_, lost_events_.load(), first_.reason, first_.advice};
    if (health.lost_events > 0 && health.first_error.empty()) {
      health.first_error = kTooSlow;
      health.advice = kFasterDisk;
    }
    return health;
  }

 private:
  static constexpr const char* kTooSlow = "events came faster than the disk could write them";
  static constexpr const char* kFasterDisk = "record to a faster disk to have them all";

  /// The lock must be held. Returns true if so many events wait that the thread should wake up.
  bool add(const CodedEvent& traced) {
    const size_t count = waiting_.events.size();
    if (!gap_.is_empty()) {
      if (!trace::begins_step(traced.event) || count != 0 || waiting_.gap_before) {
        gap_.add(traced);
        ++lost_events_;
        return false;
      }
      waiting_.gap_before = std::exchange(gap_, Gap());
    } else if (count >= options_.max_waiting_events) {
      gap_.add(traced);
      ++lost_events_;
      return false;
    }
    waiting_.events.push_back(traced);
    return waiting_.events.size() % kWakeEvents == 0;
  }

  // ---- in the writing thread ----

  void run() {
    bool is_closing = false;
    uint64_t ticket = 0;
    while (!is_closing) {
      static_cast<void>(wake_.try_acquire_for(std::chrono::nanoseconds(options_.max_delay_ns)));
      bool is_awaited = false;
      do {
        take();
        is_awaited = taken_.is_closing || taken_.flush_ticket > ticket;
        write_taken(is_awaited);
      } while (is_awaited && hand_over_gap());
      is_closing = taken_.is_closing;
      ticket = taken_.flush_ticket;
      if (is_closing) end();
      const std::lock_guard lock(done_mutex_);
      written_events_ = writer_.event_count();
      done_ticket_ = ticket;
      is_ended_ = is_closing;
      done_.notify_all();
    }
  }

  void take() {
    taken_.events.clear();
    taken_.units.clear();
    taken_.gap_before.reset();
    Names names;
    {
      const std::lock_guard lock(lock_);
      std::swap(taken_.events, waiting_.events);
      std::swap(taken_.units, waiting_.units);
      std::swap(taken_.gap_before, waiting_.gap_before);
      std::swap(names, waiting_.names);
      taken_.is_closing = waiting_.is_closing;
      taken_.flush_ticket = waiting_.flush_ticket;
    }
    names_.merge(std::move(names));
  }

  /// Ends the open gap, although no step begins. Returns false if no gap is open.
  bool hand_over_gap() {
    const std::lock_guard lock(lock_);
    if (gap_.is_empty()) return false;
    if (!waiting_.gap_before && waiting_.events.empty()) {
      waiting_.gap_before = std::exchange(gap_, Gap());
    }
    return true;
  }

  /// `is_awaited`: a caller waits, so the net effect of a gap is written although no step begins.
  void write_taken(bool is_awaited) {
    const std::vector<CodedEvent>& events = taken_.events;
    if (taken_.gap_before) {
      unwritten_.add(*taken_.gap_before);
      taken_.gap_before.reset();
      if (reason_.empty()) fail({kTooSlow, kFasterDisk});
      write_after_gap(0);
    } else if (unwritten_.is_empty()) {
      if (events.empty() && taken_.units.empty() && names_.is_empty()) return;
      if (!try_write(events, taken_.units, nullptr)) lose(0, events.size());
    } else {
      size_t lost = 0;
      while (lost < events.size() && !trace::begins_step(events[lost].event)) ++lost;
      lose(0, lost);
      if (lost < events.size() || is_awaited) write_after_gap(lost);
    }
    taken_.events.clear();
  }

  /// Writes the gap and the taken events from index `first` on.
  void write_after_gap(size_t first) {
    std::vector<CodedEvent> events = unwritten_.net();
    std::vector<PlacedUnitEvent> units;
    for (const UnitEvent& event : unwritten_.net_of_units())
      units.push_back({event, events.size()});
    for (const auto& [event, after] : taken_.units) {
      units.push_back({event, events.size() + after - first});
    }
    const auto begin = taken_.events.begin() + static_cast<std::ptrdiff_t>(first);
    events.insert(events.end(), begin, taken_.events.end());
    if (try_write(events, units, &unwritten_)) {
      unwritten_ = Gap();
      reason_.clear();
    } else {
      lose(first, taken_.events.size());
    }
  }

  /// Moves taken events [first, last) and the unit events before `last` into the gap.
  void lose(size_t first, size_t last) {
    auto unit = taken_.units.begin();
    for (size_t i = first; i <= last; ++i) {
      for (; unit != taken_.units.end() && unit->after <= i; ++unit) unwritten_.add(unit->event);
      if (i < last) unwritten_.add(taken_.events[i]);
    }
    taken_.units.erase(taken_.units.begin(), unit);
    lost_events_ += last - first;
  }

  bool try_write(std::span<const CodedEvent> events, std::span<const PlacedUnitEvent> units,
                 const Gap* gap) {
    try {
      writer_.write(events, units, names_, gap, reason_);
      names_ = {};
      return true;
    } catch (const std::exception& error) {
      fail(explain(error, writer_.is_replaced()));
    }
    return false;
  }

  void fail(const Loss& loss) {
    if (reason_.empty()) reason_ = loss.reason;
    const std::lock_guard lock(done_mutex_);
    if (!first_.reason.empty()) return;
    first_ = loss;
    if (!options_.prints_loss) return;
    const std::string line = "tidegauge: " + path_ + " is losing events (" + loss.reason +
                             "); the training continues; " + loss.advice + "\n";
    std::fputs(line.c_str(), stderr);
  }

  void end() {
    try {
      writer_.write_summary(
          {{"ended", trace::wall_clock()}, {"lost_events", std::to_string(lost_events_.load())}});
    } catch (const std::exception& error) {
      fail(explain(error, writer_.is_replaced()));
    }
  }

  const RecorderOptions options_;
  const std::string path_;

  SpinLock lock_;  // waiting_, gap_, tensors_, failure_count_
  Waiting waiting_;
  Gap gap_;  // not empty while events are being lost
  trace::TensorIds tensors_;
  uint32_t failure_count_ = 0;
  std::atomic<uint64_t> lost_events_{0};
  std::counting_semaphore<> wake_{0};

  // Used only by the writing thread.
  TraceWriter writer_;
  Waiting taken_;
  Names names_;    // not written yet
  Gap unwritten_;  // lost events whose net effect is not in the file yet
  std::string reason_;

  std::mutex done_mutex_;
  std::condition_variable done_;
  uint64_t done_ticket_ = 0;
  uint64_t written_events_ = 0;
  Loss first_;
  bool is_ended_ = false;

  std::mutex close_mutex_;
  std::thread thread_;
};

Recorder::Recorder(const std::string& path, const RecorderOptions& options)
    : path_(path), generation_(current_generation()), impl_(std::make_unique<Impl>(path, options)) {
  const std::lock_guard lock(living().mutex);
  living().recorders.push_back(this);
}

Recorder::~Recorder() {
  {
    const std::lock_guard lock(living().mutex);
    std::erase(living().recorders, this);
  }
  if (is_in_child()) {
    // The thread and the file belong to the parent process: do not even close them.
    [[maybe_unused]] const Impl* of_the_parent = impl_.release();
  } else {
    close();
  }
}

bool Recorder::is_in_child() const {
  return fork_generation.load(std::memory_order_relaxed) != generation_;
}

void Recorder::record(const Event& event, const TensorFacts* first_tensor, StackId stack) noexcept {
  if (is_in_child()) return;
  try {
    impl_->record(event, first_tensor, stack);
  } catch (...) {
    impl_->count_lost();  // no memory
  }
}

void Recorder::record_failure(const Event& event, const PostMortem& post_mortem) noexcept {
  if (is_in_child()) return;
  try {
    impl_->record_failure(event, post_mortem);
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::name_module(ModuleId module, std::string_view name,
                           std::string_view class_name) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) {
      Names::Module& row = names.modules[module];
      row.name = name;
      if (!class_name.empty()) row.class_name = class_name;
    });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::name_op(OpId op, std::string_view name) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { names.ops[op] = name; });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { names.owned.insert({storage, module, std::string(name)}); });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::count_optimizer_step(std::string_view class_name) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { ++names.optimizer_steps[std::string(class_name)]; });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::name_stack(StackId stack, std::string_view frames) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { names.stacks[stack] = frames; });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::name_unit(UnitId unit, std::string_view name) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { names.units[unit] = name; });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::set_fact(std::string_view key, std::string_view value) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name([&](Names& names) { names.facts[std::string(key)] = value; });
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::record_unit(const UnitEvent& event) noexcept {
  if (is_in_child()) return;
  try {
    impl_->record_unit(event);
  } catch (...) {
    impl_->count_lost();
  }
}

void Recorder::flush() {
  if (!is_in_child()) impl_->flush();
}

void Recorder::close() {
  if (!is_in_child()) impl_->close();
}

void Recorder::close_all(std::string_view ended_by) {
  const std::lock_guard lock(living().mutex);
  for (Recorder* recorder : living().recorders) {
    recorder->set_fact("ended_by", ended_by);
    recorder->close();
  }
}

RecorderHealth Recorder::health() const {
  return is_in_child() ? RecorderHealth{} : impl_->health();
}

}  // namespace tidegauge
