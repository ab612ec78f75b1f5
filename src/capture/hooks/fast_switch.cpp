// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/fast_switch.h"

namespace tidegauge {
namespace {

using FastSwitch = void (*)(bool are_enabled);
constinit FastSwitch current = nullptr;

}  // namespace

bool enable_fast_paths(bool are_enabled) {
  if (current == nullptr) return false;
  current(are_enabled);
  return true;
}

void set_fast_switch(FastSwitch fast_switch) { current = fast_switch; }

}  // namespace tidegauge
