// SPDX-License-Identifier: BSD-3-Clause
#include "trace/recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <new>
#include <optional>
#include <semaphore>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/util/spin_lock.h"
#include "trace/forks.h"
#include "trace/format_version.h"
#include "trace/gap.h"
#include "trace/loss.h"
#include "trace/retention.h"
#include "trace/run_facts.h"
#include "trace/tensor_ids.h"
#include "trace/writer.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::Gap;
using trace::kNoMemory;
using trace::kTooSlow;
using trace::Loss;
using trace::Names;
using trace::PlacedUnitEvent;
using trace::TraceWriter;

/// Events and names that wait for the writing thread.
struct Waiting {
  std::optional<Gap> gap_before;
  std::vector<CodedEvent> events;
  size_t done = 0;  // how many of the events are written or counted as lost
  std::vector<PlacedUnitEvent> units;
  Names names;
  bool is_closing = false;
  uint64_t flush_ticket = 0;  // the last flush that was requested
};

constexpr size_t kWakeEvents = 16 * 1024;

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
        writer_(std::make_unique<TraceWriter>(
            path, options.overwrites, options.max_file_bytes, trace::read_run_facts(options.facts),
            options.keep.is_limited() ? trace::kVersionWithDrops : trace::kPlainVersion)),
        retention_(options.keep) {
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
  /// Call if there was no memory for an event. Without it, later events would contradict the file:
  /// they are lost, too.
  void stop_recording() {
    ++lost_events_;
    is_stopped_ = true;
  }

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
    RecorderHealth health{written_events_, lost_events_.load(), first_.reason, first_.advice,
                          dropped_events_};
    if (health.lost_events > 0 && health.first_error.empty()) {
      health.first_error = kTooSlow.reason;
      health.advice = kTooSlow.advice;
    }
    return health;
  }

 private:
  /// The lock must be held. Returns true if so many events wait that the thread should wake up.
  bool add(const CodedEvent& traced) {
    if (is_stopped_) {
      ++lost_events_;
      return false;
    }
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
      const int64_t delay_ns = options_.max_delay_ns / (retention_.is_busy() ? 8 : 1);
      static_cast<void>(wake_.try_acquire_for(std::chrono::nanoseconds(delay_ns)));
      try {
        bool is_awaited = false;
        do {
          take();
          is_awaited = taken_.is_closing || taken_.flush_ticket > ticket;
          write_taken(is_awaited);
        } while (is_awaited && hand_over_gap());
      } catch (const std::exception&) {
        lose_memory();
      }
      is_closing = taken_.is_closing;
      ticket = taken_.flush_ticket;
      if (is_closing) end();
      {
        const std::lock_guard lock(done_mutex_);
        written_events_ = writer_->event_count() + dropped_events_;
        done_ticket_ = ticket;
        is_ended_ = is_closing;
        done_.notify_all();
      }
      if (!is_closing) drop_old_events();
    }
  }

  /// There was no memory to keep the effect of lost events: nothing more can be written.
  void lose_memory() {
    is_stopped_ = true;
    lost_events_ += taken_.events.size() - taken_.done;
    taken_.done = taken_.events.size();
    fail(kNoMemory);
  }

  void take() {
    taken_.done = 0;
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

  /// See trace/retention.h.
  void drop_old_events() {
    const uint64_t before = writer_->event_count();
    retention_.advance(writer_);
    const std::lock_guard lock(done_mutex_);
    dropped_events_ += before - writer_->event_count();
  }

  /// Ends the open gap, although no step begins. Returns false if no gap is open.
  bool hand_over_gap() {
    const std::lock_guard lock(lock_);
    if (gap_.is_empty() || is_stopped_) return false;
    if (!waiting_.gap_before && waiting_.events.empty()) {
      waiting_.gap_before = std::exchange(gap_, Gap());
    }
    return true;
  }

  /// `is_awaited`: a caller waits, so the net effect of a gap is written although no step begins.
  void write_taken(bool is_awaited) {
    const std::vector<CodedEvent>& events = taken_.events;
    if (is_stopped_ && (taken_.gap_before || !unwritten_.is_empty())) {
      throw std::bad_alloc();  // the gap may lack events
    }
    if (taken_.gap_before) {
      unwritten_.add(*taken_.gap_before);
      taken_.gap_before.reset();
      if (reason_.empty()) fail(kTooSlow);
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
      lost_in_gaps_ += unwritten_.lost_events();
      unwritten_ = Gap();
      reason_.clear();
    } else {
      lose(first, taken_.events.size());
    }
  }

  /// Moves taken events [first, last) and the unit events before `last` into the gap.
  void lose(size_t first, size_t last) {
    lost_events_ += last - first;
    taken_.done = last;
    auto unit = taken_.units.begin();
    for (size_t i = first; i <= last; ++i) {
      for (; unit != taken_.units.end() && unit->after <= i; ++unit) unwritten_.add(unit->event);
      if (i < last) unwritten_.add(taken_.events[i]);
    }
    taken_.units.erase(taken_.units.begin(), unit);
  }

  bool try_write(std::span<const CodedEvent> events, std::span<const PlacedUnitEvent> units,
                 const Gap* gap) {
    try {
      writer_->write(events, units, names_, gap, reason_);
      taken_.done = taken_.events.size();
      names_ = {};
      return true;
    } catch (const std::exception& error) {
      fail(trace::explain_loss(error, writer_->is_replaced()));
    }
    return false;
  }

  void fail(const Loss& loss) noexcept {
    try {
      if (reason_.empty()) reason_ = loss.reason;
      const std::lock_guard lock(done_mutex_);
      if (!first_.reason.empty()) return;
      first_ = loss;
      if (!options_.prints_loss) return;
      const std::string line = "tidegauge: " + path_ + " is losing events (" + loss.reason +
                               "); the training continues; " + loss.advice + "\n";
      std::fputs(line.c_str(), stderr);
    } catch (const std::bad_alloc&) {
    }
  }

  void end() noexcept {
    retention_.stop();
    try {
      if (is_stopped_) writer_->write_final_gap(lost_events_ - lost_in_gaps_, kNoMemory.reason);
      writer_->write_summary(
          {{"ended", trace::wall_clock()}, {"lost_events", std::to_string(lost_events_.load())}});
    } catch (const trace::SqlError& error) {
      fail(trace::explain_loss(error, writer_->is_replaced()));
    } catch (...) {
      fail(kNoMemory);
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
  std::atomic<bool> is_stopped_{false};  // by a lack of memory
  std::counting_semaphore<> wake_{0};

  // Used only by the writing thread.
  std::unique_ptr<TraceWriter> writer_;
  trace::Retention retention_;
  Waiting taken_;
  Names names_;    // not written yet
  Gap unwritten_;  // lost events whose net effect is not in the file yet
  std::string reason_;
  uint64_t lost_in_gaps_ = 0;  // that are in the file

  std::mutex done_mutex_;
  std::condition_variable done_;
  uint64_t done_ticket_ = 0;
  uint64_t written_events_ = 0;
  uint64_t dropped_events_ = 0;
  Loss first_;
  bool is_ended_ = false;

  std::mutex close_mutex_;
  std::thread thread_;
};

Recorder::Recorder(const std::string& path, const RecorderOptions& options)
    : path_(path),
      generation_(trace::ForkGeneration::now()),
      impl_(std::make_unique<Impl>(path, options)) {
  trace::ForkGeneration::watch();
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

bool Recorder::is_in_child() const { return trace::ForkGeneration::now() != generation_; }

template <typename Name>
void Recorder::name(Name change) noexcept {
  if (is_in_child()) return;
  try {
    impl_->name(change);
  } catch (...) {
    impl_->count_lost();  // no memory
  }
}

template <typename Record>
void Recorder::add(Record record) noexcept {
  if (is_in_child()) return;
  try {
    record();
  } catch (...) {
    impl_->stop_recording();  // no memory
  }
}

void Recorder::record(const Event& event, const TensorFacts* first_tensor, StackId stack) noexcept {
  add([&] { impl_->record(event, first_tensor, stack); });
}

void Recorder::record_failure(const Event& event, const PostMortem& post_mortem) noexcept {
  add([&] { impl_->record_failure(event, post_mortem); });
}

void Recorder::record_unit(const UnitEvent& event) noexcept {
  add([&] { impl_->record_unit(event); });
}

void Recorder::name_module(ModuleId module, std::string_view name,
                           std::string_view class_name) noexcept {
  this->name([&](Names& names) {
    Names::Module& row = names.modules[module];
    row.name = name;
    if (!class_name.empty()) row.class_name = class_name;
  });
}

void Recorder::name_op(OpId op, std::string_view name) noexcept {
  this->name([&](Names& names) { names.ops[op] = name; });
}

void Recorder::name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept {
  this->name([&](Names& names) { names.owned.insert({storage, module, std::string(name)}); });
}

void Recorder::count_optimizer_step(std::string_view class_name) noexcept {
  name([&](Names& names) { ++names.optimizer_steps[std::string(class_name)]; });
}

void Recorder::name_stack(StackId stack, std::string_view frames) noexcept {
  name([&](Names& names) { names.stacks[stack] = frames; });
}

void Recorder::name_unit(UnitId unit, std::string_view name) noexcept {
  this->name([&](Names& names) { names.units[unit] = name; });
}

void Recorder::set_fact(std::string_view key, std::string_view value) noexcept {
  name([&](Names& names) { names.facts[std::string(key)] = value; });
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
