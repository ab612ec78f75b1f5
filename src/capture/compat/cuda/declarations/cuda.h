// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// torch includes the driver's header, too, but the headers that we include use nothing from it.
#include "cuda_runtime_api.h"
