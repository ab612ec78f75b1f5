// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/timeline.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "trace/event_codec.h"
#include "analyze/storage_effects.h"
#include "trace/storage_rows.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::correct;
using trace::learn;
using trace::Position;
using trace::StorageEffect;
using trace::StorageEffects;

/// Where figures begin anew, so that a moment is needed.
bool is_marker(EventKind kind) {
  return kind == EventKind::StepMarker || kind == EventKind::PeakReset;
}

/// Whether what is alive is another from now on.
bool is_new_state(const StorageEffect& effect) {
  return effect.old_bytes() != effect.new_bytes() ||
         (effect.new_bytes() != 0 && !effect.is_since_birth &&
          effect.before->category != effect.after->category);
}

/// The first pass: of so many changes of a device, the one with most bytes.
class MomentChoice {
 public:
  explicit MomentChoice(uint64_t changes_each) : changes_each_(changes_each) {}

  void apply(const Event& event) {
    const auto effect = storages_.apply(event);
    const uint64_t sequence = storages_.ledger().now().sequence;
    if (effect && is_new_state(*effect)) {
      Track& track = track_of(effect->device());
      track.total_bytes += effect->new_bytes() - effect->old_bytes();
      track.observe(sequence, changes_each_);
    }
    if (is_marker(event.kind)) {
      for (Track& track : tracks_) {
        track.keep();
        track.observe(sequence, changes_each_);
      }
    }
  }

  std::vector<DeviceTimeline> finish() {
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
    uint64_t seen = 0;  // since the last one that was kept
    int64_t highest_bytes = 0;
    uint64_t highest = 0;
    std::vector<uint64_t> kept;

    void observe(uint64_t sequence, uint64_t changes_each) {
      if (seen++ == 0 || total_bytes > highest_bytes) {
        highest_bytes = total_bytes;
        highest = sequence;
      }
      if (seen == changes_each) keep();
    }
    void keep() {
      if (std::exchange(seen, 0) != 0) kept.push_back(highest);
    }
  };

  Track& track_of(Device device) {
    const auto [slot, is_new] = slots_.try_emplace(device, tracks_.size());
    if (is_new) tracks_.emplace_back().device = device;
    return tracks_[slot->second];
  }

  uint64_t changes_each_;
  StorageEffects storages_;
  std::map<Device, size_t> slots_;
  std::vector<Track> tracks_;
};

/// The second pass: what is alive at the moments, and what was going on.
class TimelineFiller {
 public:
  explicit TimelineFiller(std::vector<DeviceTimeline>& timelines) : timelines_(timelines) {
    for (size_t i = 0; i < timelines.size(); ++i) slots_[timelines[i].device] = i;
  }

  void apply(const CodedEvent& traced) {
    position_.advance(traced.event);
    if (const auto effect = storages_.apply(traced.event)) follow(traced, *effect);
    for (DeviceTimeline& timeline : timelines_) {
      const size_t next = timeline.times_ns.size();
      if (next < timeline.sequences.size() &&
          timeline.sequences[next] == storages_.ledger().now().sequence) {
        add_moment(timeline);
      }
    }
  }

  void finish() {
    for (auto& [id, life] : lives_) close(life);
    for (DeviceTimeline& timeline : timelines_) {
      std::sort(timeline.pieces.begin(), timeline.pieces.end(),
                [](const TimelinePiece& a, const TimelinePiece& b) {
                  return std::pair(a.first, a.storage) < std::pair(b.first, b.storage);
                });
    }
  }

 private:
  struct Life {
    TimelinePiece open;
    DeviceTimeline* timeline = nullptr;
    std::vector<size_t> closed;  // its earlier pieces
  };

  static uint32_t next_moment(const DeviceTimeline& timeline) {
    return static_cast<uint32_t>(timeline.times_ns.size());
  }

  void follow(const CodedEvent& traced, const StorageEffect& effect) {
    const Event& event = traced.event;
    if (!effect.before) {
      const auto slot = slots_.find(effect.device());
      if (slot == slots_.end()) return;  // a device that never had a byte
      Life& life = lives_[event.storage];
      life.timeline = &timelines_[slot->second];
      life.open = {.first = next_moment(*life.timeline),
                   .end = 0,
                   .size_bytes = event.size_bytes,
                   .storage = event.storage,
                   .module = position_.module_of(event.thread),
                   .op = event.op,
                   .tensor = traced.tensor,
                   .category = effect.after->category};
      return;
    }
    const auto found = lives_.find(event.storage);
    if (found == lives_.end()) return;
    Life& life = found->second;
    if (!effect.after) {
      close(life);
      lives_.erase(found);
      return;
    }
    if (is_new_state(effect)) close(life);
    life.open.size_bytes = effect.new_bytes();
    learn(life.open, traced, effect);
    if (!effect.is_since_birth) return;
    for (const size_t i : life.closed) correct(life.timeline->pieces[i], life.open);
  }

  /// The open piece ends before the next moment, and another begins there.
  static void close(Life& life) {
    life.open.end = next_moment(*life.timeline);
    if (life.open.first != life.open.end && life.open.size_bytes != 0) {
      life.closed.push_back(life.timeline->pieces.size());
      life.timeline->pieces.push_back(life.open);
    }
    life.open.first = life.open.end;
  }

  void add_moment(DeviceTimeline& timeline) {
    const Instant& now = storages_.ledger().now();
    TimelineContext context;
    context.first = next_moment(timeline);
    context.step = now.step;
    if (!position_.open.empty()) {
      context.module = position_.open.back().module;
      context.activity = activity_of(position_.open.back().phase);
    }
    if (now.in_optimizer_step) context.activity = Activity::Optimizer;
    // Threads may tell their events a little out of order.
    const int64_t earlier_ns = timeline.times_ns.empty() ? now.time_ns : timeline.times_ns.back();
    timeline.times_ns.push_back(std::max(now.time_ns, earlier_ns));
    if (timeline.contexts.empty() || !is_alike(timeline.contexts.back(), context)) {
      timeline.contexts.push_back(context);
    }
  }

  static bool is_alike(TimelineContext a, const TimelineContext& b) {
    a.first = b.first;
    return a == b;
  }

  static Activity activity_of(Phase phase) {
    switch (phase) {
      case Phase::Backward:
        return Activity::Backward;
      case Phase::Recompute:
        return Activity::Recompute;
      default:
        return Activity::Forward;
    }
  }

  std::vector<DeviceTimeline>& timelines_;
  std::map<Device, size_t> slots_;
  Position position_;
  StorageEffects storages_;
  std::unordered_map<StorageId, Life> lives_;
};

}  // namespace

std::vector<DeviceTimeline> read_timelines(Reader& reader, const TimelineOptions& options,
                                           const Progress& progress) {
  const uint64_t event_count = reader.event_count();
  const trace::Passes passes(progress, event_count, 2);
  const uint64_t room = std::max<uint64_t>(options.max_moments, 1);
  MomentChoice choice(std::max<uint64_t>(event_count / room + (event_count % room != 0), 1));
  reader.visit_events(1, event_count, [&](const Event& event, uint64_t sequence) {
    choice.apply(event);
    passes.tell(sequence, 0);
  });
  std::vector<DeviceTimeline> timelines = choice.finish();
  TimelineFiller filler(timelines);
  reader.visit_trace_events(1, event_count, [&](const CodedEvent& traced, uint64_t sequence) {
    filler.apply(traced);
    passes.tell(sequence, 1);
  });
  filler.finish();
  return timelines;
}

}  // namespace tidegauge
