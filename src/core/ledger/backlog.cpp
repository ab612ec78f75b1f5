// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/backlog.h"

#include <optional>

namespace tidegauge {
namespace {

bool restarts_lists(EventKind kind) {
  return kind == EventKind::IterationBegin || kind == EventKind::StatisticsReset;
}

}  // namespace

void Backlog::follow_call(size_t position) {
  const Event& event = events_[position];
  Entry& entry = events_[position].entry;
  if (event.kind == EventKind::ModuleEnter) {
    if (calls_.enter(event, position)) entry = Entry::Some;
  } else if (event.kind == EventKind::ModuleExit) {
    const std::optional<OpenCalls::Call> call = calls_.leave(event);
    if (!call) return;
    entry = Entry::Some;
    if (call->mark == kInLedger || call->mark < restarted_) return;
    entry = events_[call->mark].entry = Entry::WholeCall;
  } else if (event.kind == EventKind::ModuleMark) {
    if (event.module && is_mark(event.state)) entry = Entry::Some;
  } else if (restarts_lists(event.kind)) {
    restarted_ = position;
  }
}

bool Backlog::has_statistics(ModuleId module, const Ledger& ledger) const {
  for (size_t i = events_.size(); i-- > 0;) {
    const Captured& event = events_[i];
    if (restarts_lists(event.kind)) return false;
    if (event.module != module) continue;
    if (event.kind == EventKind::ModuleGone) return false;
    if (event.entry != Entry::None) return true;
  }
  return ledger.has_statistics(module);
}

}  // namespace tidegauge
