// SPDX-License-Identifier: BSD-3-Clause
// The queries of the Ledger, and the settling of late labels before a query.
#include <algorithm>

#include "core/ledger/ledger.h"

namespace tidegauge {

Snapshot Ledger::peak_of_frame(size_t position) {
  settle();
  return frames_.peak(position, now_);
}

ModuleStats Ledger::module_stats(ModuleId module) {
  settle();
  ModuleStats stats = module_log_.read(module, frames_.devices());
  for (const OpenCalls::Call& call : calls_) {
    if (call.module != module || call.phase == Phase::Recompute) continue;
    const ModuleState state =
        call.phase == Phase::Forward ? ModuleState::PeakForward : ModuleState::PeakBackward;
    std::vector<ModuleSnapshot>& list = stats.snapshots[static_cast<size_t>(state)];
    const auto later = std::upper_bound(
        list.begin(), list.end(), call.mark,
        [](uint64_t mark, const ModuleSnapshot& entry) { return mark < entry.call; });
    list.insert(later, {call.mark, true, peak_of_frame(frames_.find_opened(call.mark))});
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
          {frames_.devices()[stored.device_slot], stored.moment.at, stored.moment.split});
    }
  }
  if (const std::optional<size_t> running = frames_.find(PeakFrames::Kind::Step)) {
    peaks.push_back({now_.step, true, peak_of_frame(*running)});
  }
  return peaks;
}

std::optional<StorageInfo> Ledger::find_storage(StorageId storage) const {
  const StorageRecord* record = storages_.find(storage);
  if (!record) return std::nullopt;
  return info_of(*record);
}

StorageInfo Ledger::info_of(const StorageRecord& record) const {
  return {frames_.devices()[record.device_slot], record.size_bytes, record.category};
}

uint64_t Ledger::since_sequence(StorageId storage) const {
  const StorageRecord* record = storages_.find(storage);
  return record ? record->since_sequence : 0;
}

uint64_t Ledger::newest_stored_sequence(uint16_t device_slot) const {
  return std::max(newest_snapshot_sequence_, frames_[device_slot].newest_stored_sequence());
}

std::vector<StoredSplit> Ledger::stored_splits(uint64_t first_sequence) {
  std::vector<StoredSplit> splits;
  const auto collect = [&](uint16_t slot, Moment& moment) {
    if (moment.state_sequence < first_sequence) return;
    splits.push_back({slot, moment.state_sequence, &moment.split});
  };
  module_log_.for_each_stored([&](DeviceMoment& m) { collect(m.device_slot, m.moment); });
  // From the newest on, because only the last steps have moments that are new enough.
  for (auto closed = closed_steps_.rbegin();
       closed != closed_steps_.rend() && closed->taken.sequence >= first_sequence; ++closed) {
    for (DeviceMoment& m : closed->moments) collect(m.device_slot, m.moment);
  }
  frames_.for_each_stored(collect);
  return splits;
}

void Ledger::settle() {
  if (late_labels_.empty()) return;
  std::vector<StoredSplit> splits = stored_splits(late_labels_.first_sequence());
  late_labels_.settle(splits);
}

/// No effect unless there is more history than the stored splits may need.
void Ledger::settle_and_trim() {
  const size_t stored = module_log_.moment_count() +
                        frames_.devices().size() * (frames_.count() + closed_steps_.size());
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
                 frames_.footprint_bytes() + calls_.footprint_bytes();
  for (const ClosedStep& closed : closed_steps_) {
    bytes += sizeof(ClosedStep) + closed.moments.capacity() * sizeof(DeviceMoment);
  }
  return bytes;
}

}  // namespace tidegauge
