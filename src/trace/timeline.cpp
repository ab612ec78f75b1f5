// SPDX-License-Identifier: BSD-3-Clause
#include "trace/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/event_factory.h"
#include "core/ledger.h"
#include "trace/event_codec.h"
#include "trace/storage_rows.h"

namespace tidegauge {
namespace {

using trace::CodedEvent;
using trace::Position;

bool is_of_storage(EventKind kind) {
  return (kind >= EventKind::StorageBorn && kind <= EventKind::StorageFreed) ||
         kind == EventKind::StorageClaimed;
}

/// Where figures begin anew, so that a moment is needed.
bool is_marker(EventKind kind) {
  return kind == EventKind::StepMarker || kind == EventKind::PeakReset;
}

/// What an event does to its storage, by the word of the Ledger.
class Storages {
 public:
  struct Change {
    std::optional<StorageInfo> before;
    std::optional<StorageInfo> after;
    bool is_since_birth = false;

    Device device() const { return before ? before->device : after->device; }
    int64_t growth_bytes() const {
      return (after ? after->size_bytes : 0) - (before ? before->size_bytes : 0);
    }
    /// Whether what is alive is another from now on.
    bool is_new_state() const {
      return growth_bytes() != 0 || (before && after && !is_since_birth && after->size_bytes != 0 &&
                                     before->category != after->category);
    }
  };

  /// Nothing if it concerns no storage, or cannot be true.
  std::optional<Change> apply(const Event& event) {
    const uint64_t refused = ledger_.anomalies().total();
    Change change;
    if (is_of_storage(event.kind)) change.before = ledger_.find_storage(event.storage);
    ledger_.apply(events::without_modules(event));
    if (!is_of_storage(event.kind) || ledger_.anomalies().total() != refused) return {};
    change.after = ledger_.find_storage(event.storage);
    change.is_since_birth =
        event.kind == EventKind::StorageClaimed ||
        (event.kind == EventKind::StorageRelabelled && event.since == Since::Birth);
    return change;
  }

  const Instant& now() const { return ledger_.now(); }

 private:
  Ledger ledger_;
};

/// The first pass: of so many changes of a device, the one with most bytes.
class MomentChoice {
 public:
  explicit MomentChoice(uint64_t changes_each) : changes_each_(changes_each) {}

  void apply(const Event& event) {
    const auto change = storages_.apply(event);
    const uint64_t sequence = storages_.now().sequence;
    if (change && change->is_new_state()) {
      Track& track = track_of(change->device());
      track.total_bytes += change->growth_bytes();
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
  Storages storages_;
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
    if (const auto change = storages_.apply(traced.event)) follow(traced, *change);
    for (DeviceTimeline& timeline : timelines_) {
      const size_t next = timeline.times_ns.size();
      if (next < timeline.sequences.size() &&
          timeline.sequences[next] == storages_.now().sequence) {
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

  void follow(const CodedEvent& traced, const Storages::Change& change) {
    const Event& event = traced.event;
    if (!change.before) {
      const auto slot = slots_.find(change.device());
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
                   .category = change.after->category};
      return;
    }
    const auto found = lives_.find(event.storage);
    if (found == lives_.end()) return;
    Life& life = found->second;
    if (!change.after) {
      close(life);
      lives_.erase(found);
    } else if (change.is_since_birth) {
      describe(life.open, traced, change.after->category);
      for (const size_t i : life.closed) correct(life.timeline->pieces[i], life.open);
    } else {
      if (change.is_new_state()) close(life);
      life.open.size_bytes = change.after->size_bytes;
      describe(life.open, traced, change.after->category);
    }
  }

  static void describe(TimelinePiece& piece, const CodedEvent& traced, Category category) {
    piece.category = category;
    if (traced.event.kind == EventKind::StorageRelabelled) {
      if (traced.event.module) piece.module = traced.event.module;
    } else if (traced.event.kind == EventKind::StorageClaimed) {
      if (traced.event.op) piece.op = traced.event.op;
      if (traced.tensor != 0) piece.tensor = traced.tensor;
    }
  }

  static void correct(TimelinePiece& earlier, const TimelinePiece& known) {
    earlier.category = known.category;
    earlier.module = known.module;
    earlier.op = known.op;
    earlier.tensor = known.tensor;
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
    const Instant& now = storages_.now();
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
  Storages storages_;
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
