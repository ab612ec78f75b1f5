// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/allocation_failure.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <iostream>
#include <memory>
#include <mutex>
#include <new>

#include "track/memory_tracker.h"
#include "capture/storages/storage_capture.h"

namespace tidegauge::allocation_failure {
namespace {

std::atomic<Print> printer{nullptr};

void print(const std::string& text) {
  if (const Print known = printer.load()) {
    known(text);
  } else {
    std::cerr << text << std::flush;
  }
}

}  // namespace

std::optional<FailedAllocation> read(const std::exception& error) {
  if (auto failed = read_failed_allocation(error.what())) return failed;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return FailedAllocation{};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return FailedAllocation{std::nullopt, "cpu"};
  }
  return std::nullopt;
}

void tell(const FailedAllocation& failed, OpId op, const std::string& message) {
  std::shared_ptr<const PostMortem> most;
  bool is_first = true;
  {
    StorageCapture& capture = StorageCapture::get();
    const std::lock_guard lock(capture.mutex());
    capture.poll_all();
    for (MemoryTracker* tracker : capture.trackers()) {
      if (!tracker->is_started()) continue;
      is_first &= !tracker->has_post_mortem();
      auto each = tracker->allocation_failed(failed, op, message);
      if (!most || live_bytes(*each) > live_bytes(*most)) most = std::move(each);
    }
  }
  if (!most) return;
  const std::string report = render_post_mortem(*most);
  print(is_first ? report : report.substr(0, report.find('\n') + 1));
}

void tell_message(const std::string& message) noexcept {
  try {
    if (const auto failed = read_failed_allocation(message)) tell(*failed, {}, message);
  } catch (const std::exception&) {
    // Memory is short indeed; the program hears of it by its own exception.
  }
}

void set_print(Print print) { printer = print; }

}  // namespace tidegauge::allocation_failure
