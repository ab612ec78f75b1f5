// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "analyze/unit_owners.h"

namespace tidegauge {
namespace {

using trace::Position;
using trace::StorageEffect;

/// True if peaks restart at the event, so that a moment is needed.
bool is_marker(EventKind kind) {
  return kind == EventKind::StepMarker || kind == EventKind::PeakReset;
}

/// True if the event changes the bytes by category.
bool is_new_state(const StorageEffect& effect) {
  return effect.old_bytes() != effect.new_bytes() ||
         (effect.new_bytes() != 0 && !effect.is_since_birth &&
          effect.before->category != effect.after->category);
}

Activity activity_of(Phase phase) {
  switch (phase) {
    case Phase::Backward:
      return Activity::Backward;
    case Phase::Recompute:
      return Activity::Recompute;
    default:
      return Activity::Forward;
  }
}

bool is_alike(TimelineContext a, const TimelineContext& b) {
  a.first = b.first;
  return a == b;
}

/// Puts the pieces in the order of `first`, then of their storage. There are about as many moments
/// as pieces, so that pieces are counted by `first` instead of compared.
void sort_pieces(std::vector<TimelinePiece>& pieces, size_t moment_count) {
  std::vector<size_t> begins(moment_count + 1);
  for (const TimelinePiece& piece : pieces) ++begins[piece.first + 1];
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<TimelinePiece> sorted(pieces.size());
  std::vector<size_t> next = begins;
  for (const TimelinePiece& piece : pieces) sorted[next[piece.first]++] = piece;
  for (size_t moment = 0; moment < moment_count; ++moment) {
    std::sort(sorted.begin() + static_cast<ptrdiff_t>(begins[moment]),
              sorted.begin() + static_cast<ptrdiff_t>(begins[moment + 1]),
              [](const TimelinePiece& a, const TimelinePiece& b) { return a.storage < b.storage; });
  }
  pieces = std::move(sorted);
}

}  // namespace

/// The first pass: chooses the highest moment in each group of changes of a device.
class TimelineAnalysis::Choice {
 public:
  explicit Choice(uint64_t changes_each) : changes_each_(changes_each) {}

  void learn(const AppliedEvent& applied) {
    if (applied.effect != nullptr && is_new_state(*applied.effect)) {
      Track& track = find_track(applied.effect->device());
      track.total_bytes += applied.effect->new_bytes() - applied.effect->old_bytes();
      track.add(applied.now.sequence, changes_each_);
    }
    if (!is_marker(applied.event().kind)) return;
    for (Track& track : tracks_) {
      track.keep();
      track.add(applied.now.sequence, changes_each_);
    }
  }

  /// Timelines that have only their devices and sequences.
  std::vector<DeviceTimeline> take() {
    std::vector<DeviceTimeline> timelines;
    for (Track& track : tracks_) {
      track.keep();
      DeviceTimeline& timeline = timelines.emplace_back();
      timeline.device = track.device;
      timeline.sequences = std::move(track.kept);
    }
    return timelines;
  }

 private:
  struct Track {
    Device device;
    int64_t total_bytes = 0;
    uint64_t count = 0;  // changes since the last one that was kept
    int64_t highest_bytes = 0;
    uint64_t highest = 0;
    std::vector<uint64_t> kept;

    void add(uint64_t sequence, uint64_t changes_each) {
      if (count++ == 0 || total_bytes > highest_bytes) {
        highest_bytes = total_bytes;
        highest = sequence;
      }
      if (count == changes_each) keep();
    }
    void keep() {
      if (std::exchange(count, 0) != 0) kept.push_back(highest);
    }
  };

  Track& find_track(Device device) {
    if (last_ < tracks_.size() && tracks_[last_].device == device) return tracks_[last_];
    const auto [slot, is_new] = slots_.try_emplace(device, tracks_.size());
    if (is_new) tracks_.emplace_back().device = device;
    last_ = slot->second;
    return tracks_[last_];
  }

  uint64_t changes_each_;
  std::map<Device, size_t> slots_;
  std::vector<Track> tracks_;
  size_t last_ = 0;  // most changes are on the same device as the previous one
};

/// The second pass: collects pieces and contexts at the moments.
class TimelineAnalysis::Filler {
 public:
  Filler(std::vector<DeviceTimeline>& timelines, UnitOwners owners)
      : timelines_(timelines), owners_(std::move(owners)) {
    for (size_t i = 0; i < timelines.size(); ++i) slots_[timelines[i].device] = i;
  }

  void collect(const AppliedEvent& applied, const Position& position) {
    if (applied.effect != nullptr) follow(applied, position);
    for (DeviceTimeline& timeline : timelines_) {
      const size_t next = timeline.times_ns.size();
      if (next < timeline.sequences.size() && timeline.sequences[next] == applied.now.sequence) {
        add_moment(timeline, applied.now, position);
      }
    }
  }

  void finish() {
    for (DrawnStorage& storage : storages_) {
      if (storage.timeline != nullptr) close(storage);
    }
    for (DeviceTimeline& timeline : timelines_) {
      sort_pieces(timeline.pieces, timeline.sequences.size());
    }
  }

 private:
  struct DrawnStorage {
    TimelinePiece open;
    DeviceTimeline* timeline = nullptr;  // null: freed, or on a device that never had a byte
    std::vector<size_t> closed;          // its earlier pieces
  };

  static uint32_t next_moment(const DeviceTimeline& timeline) {
    return static_cast<uint32_t>(timeline.times_ns.size());
  }

  void follow(const AppliedEvent& applied, const Position& position) {
    const StorageEffect& effect = *applied.effect;
    if (!effect.before) return begin(applied, position);
    DrawnStorage& storage = storages_[applied.place];
    if (storage.timeline == nullptr) return;
    if (!effect.after) {
      close(storage);
      storage.timeline = nullptr;
      return;
    }
    if (is_new_state(effect)) close(storage);
    storage.open.size_bytes = effect.new_bytes();
    trace::learn(storage.open, applied.traced, effect);
    if (!effect.is_since_birth) return;
    for (const size_t i : storage.closed) trace::correct(storage.timeline->pieces[i], storage.open);
  }

  void begin(const AppliedEvent& applied, const Position& position) {
    if (applied.place >= storages_.size()) storages_.resize(applied.place + size_t{1});
    DrawnStorage& storage = storages_[applied.place];
    storage.closed.clear();
    const auto slot = slots_.find(applied.effect->device());
    if (slot == slots_.end()) return;
    const Event& event = applied.event();
    storage.timeline = &timelines_[slot->second];
    storage.open = {.first = next_moment(*storage.timeline),
                    .end = 0,
                    .size_bytes = event.size_bytes,
                    .storage = event.storage,
                    .module = owners_.find(position.module_of(event.thread), event.storage),
                    .op = event.op,
                    .tensor = applied.traced.tensor,
                    .stack = applied.traced.stack,
                    .born = static_cast<uint32_t>(applied.now.step),
                    .category = applied.effect->after->category};
  }

  /// Ends the open piece before the next moment, where another begins.
  static void close(DrawnStorage& storage) {
    storage.open.end = next_moment(*storage.timeline);
    if (storage.open.first != storage.open.end && storage.open.size_bytes != 0) {
      storage.closed.push_back(storage.timeline->pieces.size());
      storage.timeline->pieces.push_back(storage.open);
    }
    storage.open.first = storage.open.end;
  }

  static void add_moment(DeviceTimeline& timeline, const Instant& now, const Position& position) {
    TimelineContext context;
    context.first = next_moment(timeline);
    context.step = now.step;
    if (!position.open.empty()) {
      context.module = position.open.back().module;
      context.activity = activity_of(position.open.back().phase);
    }
    if (now.in_optimizer_step) context.activity = Activity::Optimizer;
    // Threads may record their events a little out of order.
    const int64_t earlier_ns = timeline.times_ns.empty() ? now.time_ns : timeline.times_ns.back();
    timeline.times_ns.push_back(std::max(now.time_ns, earlier_ns));
    if (timeline.contexts.empty() || !is_alike(timeline.contexts.back(), context)) {
      timeline.contexts.push_back(context);
    }
  }

  std::vector<DeviceTimeline>& timelines_;
  std::map<Device, size_t> slots_;
  std::vector<DrawnStorage> storages_;  // by place
  UnitOwners owners_;
};

TimelineAnalysis::TimelineAnalysis(const TimelineOptions& options) : options_(options) {}
TimelineAnalysis::~TimelineAnalysis() = default;

Analysis::Passes TimelineAnalysis::begin(EventSource& source, uint64_t event_count) {
  source_ = &source;
  const uint64_t room = std::max<uint64_t>(options_.max_moments, 1);
  choice_ = std::make_unique<Choice>(
      std::max<uint64_t>(event_count / room + (event_count % room != 0), 1));
  return Passes::Both;
}

void TimelineAnalysis::learn(const AppliedEvent& applied, Ledger& /*ledger*/) {
  choice_->learn(applied);
}

void TimelineAnalysis::end_first_pass(Ledger& /*ledger*/) {
  timelines_ = choice_->take();
  choice_.reset();
  filler_ = std::make_unique<Filler>(timelines_, UnitOwners(*source_));
}

void TimelineAnalysis::collect(const AppliedEvent& applied, const Position& position) {
  filler_->collect(applied, position);
}

void TimelineAnalysis::finish() {
  filler_->finish();
  filler_.reset();
}

std::vector<DeviceTimeline> read_timelines(EventSource& source, const TimelineOptions& options,
                                           const Progress& progress) {
  TimelineAnalysis analysis(options);
  analyze(source, std::array<Analysis*, 1>{&analysis}, progress);
  return analysis.take();
}

}  // namespace tidegauge
