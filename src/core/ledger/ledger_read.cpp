// SPDX-License-Identifier: BSD-3-Clause
// What the Ledger answers, and the settling of late labels that comes before an answer.
#include <algorithm>

#include "core/ledger/ledger.h"

namespace tidegauge {

bool Ledger::is_open(ModuleId module, Phase phase) const {
  return std::any_of(frames_.begin(), frames_.end(), [&](const Frame& frame) {
    return frame.kind == FrameKind::Call && frame.module == module && frame.phase == phase;
  });
}

Snapshot Ledger::current() const {
  Snapshot snapshot{now_, {}};
  for (size_t slot = 0; slot < stacks_.size(); ++slot) {
    if (stacks_[slot].total_bytes() == 0) continue;
    snapshot.devices.push_back({devices_[slot], now_, stacks_[slot].split()});
  }
  return snapshot;
}

Snapshot Ledger::peak() { return peak_of_frame(*find_frame(FrameKind::Run)); }

Snapshot Ledger::peak_of_frame(size_t position) {
  settle();
  Snapshot snapshot{now_, {}};
  for (size_t slot = 0; slot < stacks_.size(); ++slot) {
    const Moment highest = stacks_[slot].peak(position, now_);
    if (highest.total_bytes == 0) continue;
    snapshot.devices.push_back({devices_[slot], highest.at, highest.split});
  }
  return snapshot;
}

ModuleStats Ledger::module_stats(ModuleId module) {
  settle();
  ModuleStats stats = module_log_.read(module, devices_);
  for (size_t position = 0; position < frames_.size(); ++position) {
    const Frame& frame = frames_[position];
    if (frame.kind != FrameKind::Call || frame.module != module) continue;
    if (frame.phase == Phase::Recompute) continue;
    const ModuleState state =
        frame.phase == Phase::Forward ? ModuleState::PeakForward : ModuleState::PeakBackward;
    std::vector<ModuleSnapshot>& list = stats.snapshots[static_cast<size_t>(state)];
    const auto later = std::upper_bound(
        list.begin(), list.end(), frame.call,
        [](uint64_t call, const ModuleSnapshot& entry) { return call < entry.call; });
    list.insert(later, {frame.call, true, peak_of_frame(position)});
  }
  return stats;
}

std::vector<StepPeak> Ledger::step_peaks() {
  settle();
  std::vector<StepPeak> peaks;
  for (const ClosedStep& closed : closed_steps_) {
    StepPeak& peak = peaks.emplace_back(StepPeak{closed.step, false, {closed.taken, {}}});
    for (const DeviceMoment& stored : closed.moments) {
      peak.bytes.devices.push_back(
          {devices_[stored.device_slot], stored.moment.at, stored.moment.split});
    }
  }
  if (const std::optional<size_t> running = find_frame(FrameKind::Step)) {
    peaks.push_back({now_.step, true, peak_of_frame(*running)});
  }
  return peaks;
}

std::optional<StorageInfo> Ledger::find_storage(StorageId storage) const {
  const StorageRecord* record = storages_.find(storage);
  if (!record) return std::nullopt;
  return StorageInfo{devices_[record->device_slot], record->size_bytes, record->category};
}

uint64_t Ledger::since_sequence(StorageId storage) const {
  const StorageRecord* record = storages_.find(storage);
  return record ? record->since_sequence : 0;
}

ModuleId Ledger::innermost_module(ThreadId thread) const {
  for (size_t i = frames_.size(); i-- > 0;) {
    if (frames_[i].kind == FrameKind::Call && frames_[i].thread == thread) return frames_[i].module;
  }
  return {};
}

uint64_t Ledger::newest_stored_sequence(uint16_t device_slot) const {
  return std::max(newest_snapshot_sequence_, stacks_[device_slot].newest_stored_sequence());
}

std::vector<StoredSplit> Ledger::stored_splits(uint64_t first_sequence) {
  std::vector<StoredSplit> splits;
  const auto collect = [&](uint16_t slot, Moment& moment) {
    if (moment.state_sequence < first_sequence) return;
    splits.push_back({slot, moment.state_sequence, &moment.split});
  };
  module_log_.for_each_stored([&](DeviceMoment& m) { collect(m.device_slot, m.moment); });
  // Only the newest have moments that are new enough: a run has many more.
  for (auto closed = closed_steps_.rbegin();
       closed != closed_steps_.rend() && closed->taken.sequence >= first_sequence; ++closed) {
    for (DeviceMoment& m : closed->moments) collect(m.device_slot, m.moment);
  }
  for (size_t slot = 0; slot < stacks_.size(); ++slot) {
    stacks_[slot].for_each_stored([&](Moment& m) { collect(static_cast<uint16_t>(slot), m); });
  }
  return splits;
}

void Ledger::settle() {
  if (late_labels_.empty()) return;
  std::vector<StoredSplit> splits = stored_splits(late_labels_.first_sequence());
  late_labels_.settle(splits);
}

void Ledger::settle_and_trim() {
  const size_t stored =
      module_log_.moment_count() + stacks_.size() * (frames_.size() + closed_steps_.size());
  const size_t due = options_.settle_after + stored + kept_by_trim_;
  if (late_labels_.size() + remembered_since_trim_ <= due) return;
  std::vector<StoredSplit> splits = stored_splits(0);
  std::vector<uint64_t> sequences;
  sequences.reserve(splits.size());
  for (const StoredSplit& stored_split : splits) sequences.push_back(stored_split.sequence);
  std::sort(sequences.begin(), sequences.end());
  late_labels_.settle(splits);
  history_.trim(sequences, storages_);
  remembered_since_trim_ = 0;
  kept_by_trim_ = history_.size();
}

size_t Ledger::footprint_bytes() const {
  size_t bytes = storages_.footprint_bytes() + history_.footprint_bytes() +
                 late_labels_.footprint_bytes() + module_log_.footprint_bytes() +
                 frames_.capacity() * sizeof(Frame);
  for (const PeakStack& stack : stacks_) bytes += sizeof(PeakStack) + stack.footprint_bytes();
  for (const ClosedStep& closed : closed_steps_) {
    bytes += sizeof(ClosedStep) + closed.moments.capacity() * sizeof(DeviceMoment);
  }
  return bytes;
}

}  // namespace tidegauge
