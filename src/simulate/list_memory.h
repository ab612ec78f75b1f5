// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "simulate/kernel_call.h"

/// The tables that torch's kernels for lists of tensors send to the device: where each tensor is,
/// and which part of it a block of threads works on.
namespace tidegauge::simulation::list_memory {

void add_chunk_cat(const KernelCall& call, KernelRequests& requests);
void add_split_copy(const KernelCall& call, KernelRequests& requests);
void add_norms(const KernelCall& call, KernelRequests& requests);

}  // namespace tidegauge::simulation::list_memory
