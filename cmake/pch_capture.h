// SPDX-License-Identifier: BSD-3-Clause
// Precompiled for all files of libtidegauge: slow headers that nearly every file includes.
// Not <torch/torch.h>: it alone doubles the time.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <unordered_map>
#include <vector>
