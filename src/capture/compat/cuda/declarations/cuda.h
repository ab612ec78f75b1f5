// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// torch includes the header of the driver, too, but uses nothing of it where we do.
#include "cuda_runtime_api.h"
