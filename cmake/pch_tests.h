// SPDX-License-Identifier: BSD-3-Clause
// Parsed once for all tests of libtidegauge, which are C++ users of torch like any other.
#include <gtest/gtest.h>
#include <torch/torch.h>
