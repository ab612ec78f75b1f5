// SPDX-License-Identifier: BSD-3-Clause
#include "plan/step_time.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "core/events/event.h"
#include "plan/saturated.h"

namespace tidegauge {
namespace {

class Clock {
 public:
  Clock(const DeviceSpeed& speed, std::vector<OpSlice>* slices) : speed_(speed), slices_(slices) {}

  void run(const OpEntry& entry, const OpCost& cost) {
    if (cost.kind == OpClass::Free) return;
    const double time = speed_.time_ns(cost);
    host_ += speed_.launch_ns;
    double& free = streams_[entry.stream];
    const double start = std::max(free, host_);
    if (entry.stream == 0) result_.idle_ns += start - free;
    free = start + time;
    if (slices_ != nullptr) {
      const ModuleId module = modules_.empty() ? ModuleId{} : modules_.back();
      slices_->push_back({entry.number, entry.stream, entry.facts, module, start, free});
    }
    count(entry, cost, time);
  }

  void record(const OpEntry& entry) { events_[entry.number] = streams_[entry.stream]; }

  void wait(const OpEntry& entry) {
    const auto event = events_.find(entry.number);
    if (event == events_.end()) return;
    double& free = streams_[entry.stream];
    if (entry.stream == 0) {
      const double ready = std::max(free, host_);
      result_.exposed_ns += std::max(0.0, event->second - ready);
      if (event->second > free) result_.idle_ns += std::min(event->second, ready) - free;
    }
    free = std::max(free, event->second);
  }

  void enter(const OpEntry& entry) { modules_.emplace_back(entry.number); }

  /// Calls may end in another order than they began: backwards of several threads, for example.
  void leave(const OpEntry& entry) {
    const auto open = std::find(modules_.rbegin(), modules_.rend(), ModuleId(entry.number));
    if (open != modules_.rend()) modules_.erase(std::next(open).base());
  }

  StepTime finish() {
    result_.total_ns = host_;
    for (const auto& [stream, free] : streams_) {
      result_.total_ns = std::max(result_.total_ns, free);
    }
    return result_;
  }

 private:
  void count(const OpEntry& entry, const OpCost& cost, double time) {
    result_.flops = saturated::add(result_.flops, cost.flops);
    const bool is_recompute = (entry.facts & kInRecompute) != 0;
    if (is_recompute) {
      result_.recompute_flops = saturated::add(result_.recompute_flops, cost.flops);
    } else if (cost.flops > 0) {
      result_.ideal_ns += static_cast<double>(cost.flops) / speed_.peak_flops(cost.dtype) * 1e9;
    }
    if (cost.kind == OpClass::Collective) {
      result_.communication_ns += time;
      if (entry.stream == 0) result_.exposed_ns += time;
      return;
    }
    if (entry.stream != 0) return;
    double& busy = is_recompute                            ? result_.recompute_ns
                   : (entry.facts & kInBackward) != 0      ? result_.backward_ns
                   : (entry.facts & kInOptimizerStep) != 0 ? result_.optimizer_ns
                                                           : result_.forward_ns;
    busy += time;
  }

  const DeviceSpeed& speed_;
  std::vector<OpSlice>* const slices_;  // may be null
  std::vector<ModuleId> modules_;       // that run, outermost first
  double host_ = 0;
  std::unordered_map<uint16_t, double> streams_;  // when each is free
  std::unordered_map<uint32_t, double> events_;
  StepTime result_;
};

}  // namespace

StepTime find_step_time(std::span<const OpEntry> entries, const std::vector<OpCost>& costs,
                        const DeviceSpeed& speed, std::vector<OpSlice>* slices) {
  const bool has_device = std::ranges::any_of(entries, [&costs](const OpEntry& entry) {
    if (entry.kind != OpEntry::Kind::Op) return false;
    const OpCost& cost = costs[entry.number];
    return cost.kind != OpClass::Free && !cost.is_on_host;
  });
  Clock clock(speed, slices);
  for (const OpEntry& entry : entries) {
    switch (entry.kind) {
      case OpEntry::Kind::Op:
        if (!has_device || !costs[entry.number].is_on_host) clock.run(entry, costs[entry.number]);
        break;
      case OpEntry::Kind::Record:
        clock.record(entry);
        break;
      case OpEntry::Kind::Wait:
        clock.wait(entry);
        break;
      case OpEntry::Kind::Enter:
        clock.enter(entry);
        break;
      case OpEntry::Kind::Leave:
        clock.leave(entry);
        break;
    }
  }
  return clock.finish();
}

}  // namespace tidegauge
