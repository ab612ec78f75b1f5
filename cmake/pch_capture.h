// SPDX-License-Identifier: BSD-3-Clause
// Parsed once for all of libtidegauge: the slow headers that nearly every file of it needs.
// No <torch/torch.h> here, it alone doubles the time.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <unordered_map>
#include <vector>
