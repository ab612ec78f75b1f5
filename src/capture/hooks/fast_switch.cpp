// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/fast_switch.h"

namespace tidegauge {
namespace {

using FastSwitch = void (*)(bool are_enabled);
constinit FastSwitch plugged_switch = nullptr;

}  // namespace

bool enable_fast_paths(bool are_enabled) {
  if (plugged_switch == nullptr) return false;
  plugged_switch(are_enabled);
  return true;
}

void set_fast_switch(FastSwitch fast_switch) { plugged_switch = fast_switch; }

}  // namespace tidegauge
