// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/util/id.h"

namespace tidegauge {

using StorageId = Id<struct StorageTag, uint64_t>;
using ModuleId = Id<struct ModuleTag, uint32_t>;
using OpId = Id<struct OpTag, uint32_t>;
using StreamId = Id<struct StreamTag, uint16_t>;
using ThreadId = Id<struct ThreadTag, uint16_t>;
using StackId = Id<struct StackTag, uint32_t>;
/// A group of parameters that are gathered and released together (FSDP2: a param group).
using UnitId = Id<struct UnitTag, uint32_t>;

}  // namespace tidegauge
