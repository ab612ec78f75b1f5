// SPDX-License-Identifier: BSD-3-Clause
#include "track/failure_printer.h"

#include <atomic>
#include <iostream>
#include <memory>
#include <vector>

#include "capture/hooks/allocation_failure.h"
#include "core/ledger/post_mortem_page.h"

namespace tidegauge::failure_printer {
namespace {

constinit std::atomic<Print> printer{nullptr};

void print(const std::string& text) {
  if (const Print own = printer.load()) {
    own(text);
  } else {
    std::cerr << text << std::flush;
  }
}

void report(const std::vector<CaptureListener::FailureReport>& reports) {
  const PostMortem* largest = nullptr;
  bool is_first = true;
  for (const auto& each : reports) {
    is_first &= each.is_first;
    const bool is_larger =
        largest == nullptr || live_bytes(*each.post_mortem) > live_bytes(*largest);
    if (is_larger) largest = each.post_mortem.get();
  }
  const std::string page = render_post_mortem(*largest);
  print(is_first ? page : page.substr(0, page.find('\n') + 1));
}

}  // namespace

void install() { allocation_failure::set_reporter(&report); }

void set_print(Print print) { printer = print; }

}  // namespace tidegauge::failure_printer
