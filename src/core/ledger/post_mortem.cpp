// SPDX-License-Identifier: BSD-3-Clause
#include "core/ledger/post_mortem.h"

namespace tidegauge {

int64_t live_bytes(const PostMortem& post_mortem) {
  int64_t sum = 0;
  for (const LiveGroup& group : post_mortem.live) sum += group.size_bytes;
  return sum;
}

}  // namespace tidegauge
