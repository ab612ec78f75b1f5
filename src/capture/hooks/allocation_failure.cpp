// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/allocation_failure.h"

#include <atomic>

#include "capture/compat/out_of_memory.h"
#include "capture/storages/storage_registry.h"

namespace tidegauge::allocation_failure {
namespace {

constinit std::atomic<Reporter> current_reporter{nullptr};

}  // namespace

std::optional<FailedAllocation> read(const std::exception& error) {
  return out_of_memory::read(error);
}

void notify(const FailedAllocation& failed, OpId op, const std::string& message) {
  std::vector<CaptureListener::FailureReport> reports;
  {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().poll_all();
    for (CaptureListener* listener : StorageRegistry::get().listeners().all()) {
      if (!listener->is_started()) continue;
      reports.push_back(listener->allocation_failed(failed, op, message));
    }
  }
  const Reporter reporter = current_reporter.load();
  if (reporter != nullptr && !reports.empty()) reporter(reports);
}

void notify_message(const std::string& message) noexcept {
  try {
    if (const auto failed = out_of_memory::read(message)) notify(*failed, {}, message);
  } catch (const std::exception&) {
    // Hardly any memory is left. The program still gets its own exception.
  }
}

void set_reporter(Reporter reporter) { current_reporter = reporter; }

}  // namespace tidegauge::allocation_failure
