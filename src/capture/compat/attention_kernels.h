// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/compat/torch_version.h"

/// What torch's attention kernels for CUDA can do, by version. The version of cuDNN is the one that
/// the package index has for this torch.
namespace tidegauge {

/// cuDNN is newer than 9.15, so torch prefers it for half precision on the large devices.
inline constexpr bool kPrefersCudnnAttention = TIDEGAUGE_TORCH_AT_LEAST(2, 11);
/// cuDNN is newer than 9.22.
inline constexpr bool kCudnnTakesLargeHeads = TIDEGAUGE_TORCH_AT_LEAST(2, 15);
/// Memory-efficient attention accepts fewer heads of keys and values than of queries.
inline constexpr bool kEfficientTakesGroups = TIDEGAUGE_TORCH_AT_LEAST(2, 15);

}  // namespace tidegauge
