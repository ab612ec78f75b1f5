// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/module_stats.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace tidegauge {
namespace {

constexpr std::array kModuleStates{
    ModuleState::PeakForward,  ModuleState::PreForward,    ModuleState::PostForward,
    ModuleState::PreForwardAc, ModuleState::PostForwardAc, ModuleState::PeakBackward,
    ModuleState::PreBackward,  ModuleState::PostBackward,
};

bool is_peak(ModuleState state) {
  return state == ModuleState::PeakForward || state == ModuleState::PeakBackward;
}

uint64_t first_moment(const ModuleStats& stats, ModuleState state) {
  const bool is_end = state == ModuleState::PostForward || state == ModuleState::PostForwardAc ||
                      state == ModuleState::PostBackward;
  const ModuleSnapshot& first = stats[state].front();
  return is_end ? first.bytes.taken.sequence : first.call;
}

}  // namespace

std::vector<ModuleState> states_in_order(const ModuleStats& stats) {
  std::vector<ModuleState> states;
  std::copy_if(kModuleStates.begin(), kModuleStates.end(), std::back_inserter(states),
               [&](ModuleState state) { return !stats[state].empty(); });
  std::stable_sort(states.begin(), states.end(), [&](ModuleState a, ModuleState b) {
    return first_moment(stats, a) < first_moment(stats, b);
  });
  return states;
}

const Snapshot* local_peak(const ModuleStats& stats) {
  const auto& backward = stats[ModuleState::PeakBackward];
  const auto& list = backward.empty() ? stats[ModuleState::PeakForward] : backward;
  return list.empty() ? nullptr : &list.back().bytes;
}

void ModuleLog::begin(ModuleId module, ModuleState state, uint64_t call, const Instant& taken) {
  records_.push_back({taken, call, moments_.size(), 0, module, state});
}

bool ModuleLog::begin_present(ModuleId module, ModuleState state, uint64_t call,
                              const Instant& taken, uint64_t changed_sequence) {
  if (last_present_ && records_[*last_present_].taken.sequence >= changed_sequence) {
    const Record& same = records_[*last_present_];
    records_.push_back({taken, call, same.first_moment, same.moment_count, module, state});
    return false;
  }
  last_present_ = records_.size();
  begin(module, state, call, taken);
  return true;
}

Moment& ModuleLog::add(uint16_t device_slot) {
  DeviceMoment& added = moments_.emplace_back();
  added.device_slot = device_slot;
  ++records_.back().moment_count;
  return added.moment;
}

void ModuleLog::forget_sizes() { sizes_ = {}; }

void ModuleLog::restart_lists() {
  records_.clear();
  forgotten_ = 0;
  moments_.clear();
  last_present_.reset();
  if (indexed_ == 0) return;  // clearing an empty index would still walk over its buckets
  index_.clear();
  modules_.clear();
  indexed_ = 0;
}

void ModuleLog::forget(ModuleId module) {
  sizes_.erase(module);
  for (Record& record : records_) {
    if (record.module != module) continue;
    record.module = ModuleId{};
    ++forgotten_;
  }
  index_.clear();
  modules_.clear();
  indexed_ = 0;
  if (2 * forgotten_ > records_.size()) drop_forgotten();
}

void ModuleLog::drop_forgotten() {
  std::vector<DeviceMoment> kept;
  std::erase_if(records_, [&](Record& record) {
    if (!record.module) return true;
    const auto first = moments_.begin() + static_cast<std::ptrdiff_t>(record.first_moment);
    record.first_moment = kept.size();
    kept.insert(kept.end(), first, first + record.moment_count);
    return false;
  });
  moments_ = std::move(kept);
  forgotten_ = 0;
  last_present_.reset();
}

void ModuleLog::update_index() {
  for (; indexed_ < records_.size(); ++indexed_) {
    if (!records_[indexed_].module) continue;
    std::vector<size_t>& own = index_[records_[indexed_].module];
    if (own.empty()) modules_.push_back(records_[indexed_].module);
    own.push_back(indexed_);
  }
}

const std::vector<ModuleId>& ModuleLog::modules() {
  update_index();
  return modules_;
}

bool ModuleLog::has_entries(ModuleId module) const {
  // Without the index, because this runs at each call of a root module, whose entry is the first
  // one if it has any.
  return std::any_of(records_.begin(), records_.end(),
                     [&](const Record& record) { return record.module == module; });
}

bool ModuleLog::knows(ModuleId module) const {
  return has_entries(module) || sizes_.find(module) != nullptr;
}

ModuleStats ModuleLog::read(ModuleId module, const std::vector<Device>& devices) {
  ModuleStats stats;
  if (const Sizes* known = sizes_.find(module)) {
    for (size_t i = 0; i < kSizeOfCount; ++i) {
      if (known->bytes[i] != kUnknown) stats.sizes[i] = known->bytes[i];
    }
  }
  update_index();
  const auto own = index_.find(module);
  if (own == index_.end()) return stats;
  for (const size_t r : own->second) {
    const Record& record = records_[r];
    ModuleSnapshot entry;
    entry.call = record.call;
    entry.bytes.taken = record.taken;
    for (size_t m = record.first_moment; m < record.first_moment + record.moment_count; ++m) {
      const DeviceMoment& stored = moments_[m];
      entry.bytes.devices.push_back({devices[stored.device_slot],
                                     is_peak(record.state) ? stored.moment.at : record.taken,
                                     stored.moment.split});
    }
    stats.snapshots[static_cast<size_t>(record.state)].push_back(std::move(entry));
  }
  // The calls of a module that calls itself end in reverse order.
  for (std::vector<ModuleSnapshot>& list : stats.snapshots) {
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.call < b.call; });
  }
  return stats;
}

size_t ModuleLog::footprint_bytes() const {
  constexpr size_t kNodeBytes = 96;  // approximate cost per entry of a hash map
  return records_.capacity() * sizeof(Record) + moments_.capacity() * sizeof(DeviceMoment) +
         sizes_.footprint_bytes() + index_.size() * kNodeBytes + indexed_ * sizeof(size_t);
}

}  // namespace tidegauge
