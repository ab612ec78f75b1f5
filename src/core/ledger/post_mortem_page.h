// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "core/ledger/post_mortem.h"

namespace tidegauge {

/// A post-mortem in 80 columns: the request that failed, the live memory of that device by
/// category, module and tensor, and the largest storages that could be freed.
std::string render_post_mortem(const PostMortem& post_mortem);

}  // namespace tidegauge
