// SPDX-License-Identifier: BSD-3-Clause
#include "track/update_history.h"

namespace tidegauge {

UpdateHistory::Update UpdateHistory::add_call(const Versions& before, const Versions& after) {
  // If the number differs, a parameter was added during the call, and positions do not match.
  if (after == before || after.size() != before.size()) return Update::None;
  is_updated_.resize(after.size());
  bool is_first = true;
  bool is_repeated = false;
  for (size_t i = 0; i < after.size(); ++i) {
    is_first &= !is_updated_[i];
    is_repeated |= is_updated_[i] && after[i] != before[i];
  }
  if (is_repeated) is_updated_.assign(after.size(), false);
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] != before[i]) is_updated_[i] = true;
  }
  return is_first || is_repeated ? Update::NewStep : Update::Further;
}

}  // namespace tidegauge
