// SPDX-License-Identifier: BSD-3-Clause
// Precompiled for all tests of libtidegauge.
#include <gtest/gtest.h>
#include <torch/torch.h>
