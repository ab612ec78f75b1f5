// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/trace_replay.h"

#include <algorithm>
#include <compare>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/rounding.h"

namespace tidegauge {
namespace {

std::string describe(const TraceEvent& event) {
  return std::string(to_string(event.action)) + " of " + std::to_string(event.size_bytes) +
         " bytes at " + std::to_string(event.address);
}

std::string describe(const std::vector<TraceEvent>& events) {
  if (events.empty()) return "nothing";
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(events.size(), 3); ++i) {
    text += (i > 0 ? ", " : "") + describe(events[i]);
  }
  return events.size() > 3 ? text + " and " + std::to_string(events.size() - 3) + " more" : text;
}

/// Describes the first segment that differs.
std::string describe_difference(const Layout& simulated, const Layout& recorded) {
  const size_t common = std::min(simulated.size(), recorded.size());
  for (size_t i = 0; i < common; ++i) {
    if (simulated[i] != recorded[i]) {
      return "the segment at address " + std::to_string(recorded[i].address) +
             " has another final layout";
    }
  }
  return "recorded " + std::to_string(recorded.size()) + " segments at the end, simulated " +
         std::to_string(simulated.size());
}

/// Where the ranges of expandable segments end. A recording names only pages that were mapped. A
/// range reaches at most to the next address that the recording gives to another stream or pool, or
/// to a plain segment, at any time.
///
///   [pages of a range][pages]     ...     [page of another range]
///   '------------- the range at most ----'
class RangeEnds {
 public:
  RangeEnds(const RewoundTrace& trace, const AllocConfig& config) {
    for (const SegmentState& each : trace.initial_layout) {
      places_.push_back(
          {each.address, {each.is_expandable, each.stream, each.pool, each.is_small}});
    }
    for (const TraceEvent& event : trace.events) {
      if (!is_segment_action(event.action) || !adds_memory(event.action)) continue;
      const bool is_expandable = event.action == TraceAction::SegmentMap;
      const bool is_small = is_small_segment(event.size_bytes, is_expandable, config);
      places_.push_back({event.address, {is_expandable, event.stream, event.pool, is_small}});
    }
    std::sort(places_.begin(), places_.end());
    for (size_t i = places_.size(); i-- > 1;) {
      const bool is_same = places_[i - 1].user == places_[i].user;
      places_[i - 1].end = is_same ? places_[i].end : places_[i].address;
    }
  }

  int64_t find(int64_t address, int64_t stream, PoolId pool, bool is_small) const {
    const auto above =
        std::upper_bound(places_.begin(), places_.end(), address,
                         [](int64_t wanted, const Place& place) { return wanted < place.address; });
    if (above == places_.end()) return kAddressEnd;
    const bool is_same = above->user == User{true, stream, pool, is_small};
    return is_same ? above->end : above->address;
  }

 private:
  /// Expandable or not, stream, pool, small or not.
  using User = std::tuple<bool, int64_t, PoolId, bool>;
  struct Place {
    int64_t address;
    User user;
    int64_t end = kAddressEnd;  // the next address with another user
    auto operator<=>(const Place&) const = default;
  };
  std::vector<Place> places_;
};

class Replay {
 public:
  Replay(const RewoundTrace& trace, const ReplayOptions& options, bool is_exact)
      : trace_(trace),
        options_(options),
        is_exact_(is_exact),
        range_ends_(trace, options.config),
        allocator_(allocator_options()) {
    if (is_exact_) {
      for (Block* block : allocator_.adopt(trace_.initial_layout)) remember(block->address, block);
    } else {
      allocate_initial_blocks();
    }
    // Count only the segment events that the trace's events cause.
    simulated_.clear();
    observe();
  }

  void run() {
    for (; index_ < trace_.events.size(); ++index_) apply(trace_.events[index_]);
    compare();
  }

  ReplayResult finish(const Layout* recorded_layout) {
    ReplayResult result;
    result.final_layout = allocator_.layout();
    result.figures = meter_.finish(static_cast<int64_t>(result.final_layout.size()));
    result.stats = allocator_.flat_stats();
    if (recorded_layout != nullptr && !divergence_ && result.final_layout != *recorded_layout) {
      diverge(describe_difference(result.final_layout, *recorded_layout));
    }
    result.divergence = std::move(divergence_);
    return result;
  }

 private:
  AllocatorOptions allocator_options() {
    AllocatorOptions options{.config = options_.config,
                             .tie = options_.tie,
                             .deferred = options_.deferred,
                             .total_bytes = options_.total_bytes,
                             .memory_fraction = {},
                             .place = {},
                             .range_end = {},
                             .on_segment_event = {},
                             .on_sync = {}};
    // Without device memory, ignore the memory fraction.
    if (options_.total_bytes == kNoLimit) options.config.per_process_memory_fraction = 1;
    options.on_segment_event = [this](const TraceEvent& event) {
      simulated_.push_back(event);
      meter_.observe_segment(allocator_.reserved_bytes());
    };
    if (is_exact_) {
      options.on_sync = [this] { complete_held(); };
      options.place = [this](int64_t size_bytes, bool is_expandable) {
        return recorded_place(size_bytes, is_expandable);
      };
      // The memory of the device decides how long a range is.
      if (options_.total_bytes != kNoLimit) return options;
      options.range_end = [this](int64_t address, int64_t stream, PoolId pool, bool is_small) {
        return range_ends_.find(address, stream, pool, is_small);
      };
    }
    return options;
  }

  void allocate_initial_blocks() {
    for (const SegmentState& segment : trace_.initial_layout) {
      for (const BlockState& block : segment.blocks) {
        if (block.use == BlockUse::Free) continue;
        Block* made =
            allocate(std::max<int64_t>(block.requested_bytes, 1), segment.stream, segment.pool);
        if (made != nullptr && block.use == BlockUse::PendingFree) {
          allocator_.record_stream(made, segment.stream + 1);
          allocator_.free(made);
        }
        remember(block.address, made);
      }
    }
    meter_ = RunMeter{};
  }

  /// Only the recording may complete the free of a block that waits for another stream; otherwise
  /// the allocator does, and we must not keep the block.
  void remember(int64_t address, Block* block) {
    const bool is_waiting = block != nullptr && block->use == BlockUse::PendingFree;
    if (!is_waiting || options_.deferred == DeferredFrees::ByCaller) blocks_[address] = block;
  }

  /// The address of the next segment in the recording, if it matches the requested one.
  int64_t recorded_place(int64_t size_bytes, bool is_expandable) {
    const TraceAction wanted = is_expandable ? TraceAction::SegmentMap : TraceAction::SegmentAlloc;
    if (divergence_ || simulated_.size() >= recorded_.size()) return kNoAddress;
    const TraceEvent& next = recorded_[simulated_.size()];
    const bool is_same = next.action == wanted && (is_expandable || next.size_bytes == size_bytes);
    return is_same ? next.address : kNoAddress;
  }

  void observe() {
    const MemoryStats& stats = std::as_const(allocator_).stats();
    meter_.observe(stats.reserved_bytes.all().current, stats.active_bytes.all().current,
                   stats.requested_bytes.all().current);
  }

  void diverge(std::string what) {
    if (is_exact_ && !divergence_) divergence_ = Divergence{index_, std::move(what)};
  }

  /// Compares the segment events of the recording and the simulation since the last comparison.
  void compare() {
    if (recorded_ != simulated_) {
      diverge("recorded " + describe(recorded_) + ", simulated " + describe(simulated_));
    }
    recorded_.clear();
    simulated_.clear();
  }

  Block* allocate(int64_t size_bytes, int64_t stream, PoolId pool) {
    if (!pool.is_default() && !allocator_.has_pool(pool)) allocator_.create_pool(pool);
    return allocator_.malloc(size_bytes, stream, pool);
  }

  void apply(const TraceEvent& event) {
    switch (event.action) {
      case TraceAction::Alloc:
        alloc(event);
        break;
      case TraceAction::FreeRequested:
        free(event);
        break;
      case TraceAction::FreeCompleted:
        if (is_of_release(event)) {
          held_.push_back(event.address);
          return;
        }
        complete(event.address);
        break;
      case TraceAction::SegmentFree:
      case TraceAction::SegmentUnmap:
        release_unused_pools();
        if (is_cue()) allocator_.empty_cache();
        recorded_.push_back(event);
        return;
      case TraceAction::SegmentAlloc:
      case TraceAction::SegmentMap:
        recorded_.push_back(event);
        return;
      case TraceAction::OutOfMemory:
        fail_to_alloc(event);
        break;
      case TraceAction::Snapshot:
        break;
    }
    compare();
    observe();
  }

  bool releases(size_t i) const {
    const TraceAction action = trace_.events[i].action;
    return is_segment_action(action) && !adds_memory(action);
  }

  /// True if the release at this event is the first of those caused by emptying the cache.
  bool is_cue() {
    if (index_ > 0 && releases(index_ - 1)) return false;
    if (options_.total_bytes == kNoLimit) return true;
    return held_.empty() && !find_refused_request().has_value();
  }

  /// The request that the releases and completed frees from this event on belong to: the next
  /// event, if the recording and the simulation agree that cached memory was not enough.
  std::optional<TraceEvent> find_refused_request() {
    size_t next = index_;
    const auto is = [&](TraceAction action) { return trace_.events[next].action == action; };
    const size_t end = trace_.events.size();
    while (next < end && (releases(next) || is(TraceAction::FreeCompleted))) ++next;
    int64_t new_bytes = 0;
    for (; next < end && adds_memory(trace_.events[next].action); ++next) {
      new_bytes = std::min(new_bytes + trace_.events[next].size_bytes, kMaxDeviceBytes);
    }
    if (next == end) return std::nullopt;
    const TraceEvent& request = trace_.events[next];
    if (is(TraceAction::OutOfMemory)) return request;
    const bool is_refused =
        new_bytes > 0 && is(TraceAction::Alloc) && allocator_.may_release_for(request, new_bytes);
    return is_refused ? std::optional(request) : std::nullopt;
  }

  /// True if other streams finished with a block only when torch waited for them, within a request
  /// that releases the cache. Until then the block does not serve the request.
  bool is_of_release(const TraceEvent& event) {
    if (!is_exact_ || options_.total_bytes == kNoLimit) return false;
    if (!held_.empty() || (!recorded_.empty() && simulated_.empty())) return true;
    const auto found = blocks_.find(event.address);
    if (found == blocks_.end() || found->second == nullptr) return false;
    const std::optional<TraceEvent> request = find_refused_request();
    if (!request.has_value()) return false;
    size_t next = index_;
    while (trace_.events[next].action == TraceAction::FreeCompleted) ++next;
    const int64_t first_released = releases(next) ? trace_.events[next].address : kNoAddress;
    return allocator_.would_help(*found->second, *request, first_released);
  }

  void complete_held() {
    for (const int64_t address : std::exchange(held_, {})) complete(address);
  }

  /// If the memory of a private pool was released, the pool was no longer in use.
  void release_unused_pools() {
    for (size_t i = index_; i < trace_.events.size() && releases(i); ++i) {
      const PoolId pool = trace_.events[i].pool;
      if (!pool.is_default() && allocator_.is_pool_used(pool)) allocator_.release_pool(pool);
    }
  }

  /// If the device's memory is known, the simulator must fail as well. Otherwise only the release
  /// before the failure counts, which empties the cache.
  void fail_to_alloc(const TraceEvent& event) {
    meter_.observe_out_of_memory();
    if (options_.total_bytes == kNoLimit) return;
    Block* block = allocate(std::max<int64_t>(event.size_bytes, 1), event.stream, event.pool);
    complete_held();
    if (block == nullptr) return;
    diverge("out of memory in the recording only, " + describe(event));
    allocator_.free(block);
  }

  void alloc(const TraceEvent& event) {
    Block* block = allocate(std::max<int64_t>(event.size_bytes, 1), event.stream, event.pool);
    complete_held();
    blocks_[event.address] = block;
    if (block == nullptr) {
      meter_.observe_out_of_memory();
      diverge("out of memory in the simulation only");
    } else if (block->address != event.address) {
      diverge("recorded " + describe(event) + ", simulated at " + std::to_string(block->address));
    }
  }

  /// A free that is not completed at once waits for a stream that the recording does not name.
  void free(const TraceEvent& event) {
    const auto found = blocks_.find(event.address);
    if (found == blocks_.end() || found->second == nullptr) return;
    Block* block = found->second;
    const bool is_completed = index_ + 1 < trace_.events.size() &&
                              trace_.events[index_ + 1].action == TraceAction::FreeCompleted &&
                              trace_.events[index_ + 1].address == event.address;
    if (!is_completed) allocator_.record_stream(block, event.stream + 1);
    allocator_.free(block);
    if (is_completed || options_.deferred != DeferredFrees::ByCaller) blocks_.erase(found);
  }

  void complete(int64_t address) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || found->second == nullptr) return;
    allocator_.complete_free(found->second);
    blocks_.erase(found);
  }

  const RewoundTrace& trace_;
  const ReplayOptions& options_;
  const bool is_exact_;
  const RangeEnds range_ends_;
  RunMeter meter_;
  CachingAllocator allocator_;
  size_t index_ = 0;
  std::unordered_map<int64_t, Block*> blocks_;  // by recorded address; nullptr: out of memory
  std::vector<int64_t> held_;                   // completed by the next wait for all streams
  std::vector<TraceEvent> recorded_;            // segment events since the last comparison
  std::vector<TraceEvent> simulated_;
  std::optional<Divergence> divergence_;
};

}  // namespace

ReplayResult replay_trace(const RewoundTrace& trace, const Layout& final_layout,
                          const ReplayOptions& options) {
  Replay replay(trace, options, /*is_exact=*/true);
  replay.run();
  return replay.finish(&final_layout);
}

ReplayResult replay_fresh(const RewoundTrace& trace, const ReplayOptions& options) {
  Replay replay(trace, options, /*is_exact=*/false);
  replay.run();
  return replay.finish(nullptr);
}

}  // namespace tidegauge
