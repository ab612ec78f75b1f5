// SPDX-License-Identifier: BSD-3-Clause
#include "fit/request_analysis.h"

#include "fit/judge.h"

namespace tidegauge {

void RequestAnalysis::end_first_pass(Ledger& ledger) {
  const Snapshot peak = ledger.peak();
  DevicePeaks peaks;
  for (const DeviceSplit& each : peak.devices) {
    peaks.emplace_back(to_string(each.device), each.split.total());
  }
  const std::string chosen = choose_device(peaks, wanted_);
  for (const DeviceSplit& each : peak.devices) {
    if (to_string(each.device) == chosen) device_ = each.device;
  }
  requests_ = std::make_shared<RequestStream>(device_);
}

void RequestAnalysis::collect(const AppliedEvent& applied, const trace::Position& /*position*/) {
  requests_->add(applied.event(), applied.now.sequence);
}

}  // namespace tidegauge
