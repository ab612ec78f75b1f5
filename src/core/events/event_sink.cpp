// SPDX-License-Identifier: BSD-3-Clause
#include "core/events/event_sink.h"

#include "tidegauge/errors.h"

namespace tidegauge {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

void EventSink::attach() {
  if (has_tracker_.exchange(true)) {
    throw UsageError("the recorder has a tracker already; use one recorder per tracker");
  }
}

}  // namespace tidegauge
