// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/claimed_device.h"

namespace tidegauge::simulation {
namespace {

ClaimedDevice claimed;

}  // namespace

const ClaimedDevice& claimed_device() { return claimed; }
void set_claimed_device(const ClaimedDevice& device) { claimed = device; }

}  // namespace tidegauge::simulation
