// SPDX-License-Identifier: BSD-3-Clause
// Any file as a pickle: the check neither fails nor takes long.
#include "allocator/plain_pickle.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto objects :
       {tidegauge::PickledObjects::None, tidegauge::PickledObjects::DefaultDicts}) {
    const auto fault =
        tidegauge::find_pickle_fault({reinterpret_cast<const char*>(data), size}, objects);
    if (fault && (fault->empty() || fault->size() > 500)) tidegauge::fuzz::fail("no short fault");
  }
  return 0;
}
