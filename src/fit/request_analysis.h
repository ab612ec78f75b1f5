// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "allocator/request_stream.h"
#include "analyze/analysis.h"

namespace tidegauge {

/// Collects the requests of a run to one device. It does so in the second pass, because the first
/// pass shows which devices were used.
class RequestAnalysis : public Analysis {
 public:
  /// `device`: "cuda:0"; by default `choose_device` decides. The first pass throws UsageError if
  /// the run did not use it.
  explicit RequestAnalysis(std::optional<std::string> device = {}) : wanted_(std::move(device)) {}

  /// Both are complete after `analyze`.
  Device device() const { return device_; }
  std::shared_ptr<const RequestStream> requests() const { return requests_; }

  Passes begin(EventSource& /*source*/, uint64_t /*event_count*/) override {
    return Passes::Second;
  }
  void end_first_pass(Ledger& ledger) override;
  void collect(const AppliedEvent& applied, const trace::Position& position) override;

 private:
  std::optional<std::string> wanted_;
  Device device_ = kCpu;
  std::shared_ptr<RequestStream> requests_;
};

}  // namespace tidegauge
