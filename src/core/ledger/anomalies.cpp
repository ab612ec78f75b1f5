// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/anomalies.h"

namespace tidegauge {
namespace {

constexpr std::array<std::string_view, kAnomalyCount> kNames = {
    "unknown event",
    "no storage",
    "no module",
    "negative size",
    "total too large",
    "already born",
    "resize of unknown",
    "relabel of unknown",
    "free of unknown",
    "exit without enter",
    "optimizer step end without begin",
    "collective end without begin",
};
static_assert(static_cast<size_t>(Anomaly::CollectiveEndWithoutBegin) + 1 == kAnomalyCount);

std::string describe(Anomaly anomaly, const Event& event) {
  const std::string storage = "storage " + std::to_string(event.storage.value);
  const std::string module = "module " + std::to_string(event.module.value);
  const std::string size = std::to_string(event.size_bytes) + " bytes";
  const std::string thread = "thread " + std::to_string(event.thread.value);
  const std::string not_alive = ", which is not alive: it was never born or is already freed";
  switch (anomaly) {
    case Anomaly::UnknownEvent:
      return "an event of kind " + std::to_string(static_cast<int>(event.kind)) +
             " has a value that this version does not know";
    case Anomaly::NoStorage:
      return "a storage event of kind " + std::to_string(static_cast<int>(event.kind)) +
             " names no storage";
    case Anomaly::NoModule:
      return "a module event of kind " + std::to_string(static_cast<int>(event.kind)) +
             " names no module";
    case Anomaly::NegativeSize:
      return "a size of " + size + " is given for " +
             (event.kind == EventKind::ModuleSize ? module : storage);
    case Anomaly::TotalTooLarge:
      return "with " + size + " for " + storage + ", the total of " + to_string(event.device) +
             " does not fit into 63 bits";
    case Anomaly::AlreadyBorn:
      return "birth of " + storage + ", which is already alive";
    case Anomaly::ResizeOfUnknown:
      return "resize of " + storage + not_alive;
    case Anomaly::RelabelOfUnknown:
      return "relabel of " + storage + not_alive;
    case Anomaly::FreeOfUnknown:
      return "free of " + storage + not_alive;
    case Anomaly::ExitWithoutEnter:
      return "exit of " + module + " in " + thread + ", which has no open call in that phase";
    case Anomaly::OptimizerStepEndWithoutBegin:
      return "an optimizer step ends in " + thread + ", but none is running";
    case Anomaly::CollectiveEndWithoutBegin:
      return "a collective ends in " + thread + ", but none is running";
  }
  return {};
}

}  // namespace

std::string_view to_string(Anomaly anomaly) { return kNames[static_cast<size_t>(anomaly)]; }

void Anomalies::count(Anomaly anomaly, const Event& event, uint64_t sequence) {
  const auto index = static_cast<size_t>(anomaly);
  if (counts_[index]++ > 0) return;
  first_[index] =
      "Event " + std::to_string(sequence) + ": " + describe(anomaly, event) + "; ignored.";
  if (very_first_.empty()) very_first_ = first_[index];
}

uint64_t Anomalies::total() const {
  uint64_t sum = 0;
  for (const uint64_t count : counts_) sum += count;
  return sum;
}

}  // namespace tidegauge
