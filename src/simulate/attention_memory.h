// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "simulate/kernel_call.h"

/// The memory that torch's attention kernels request on CUDA.
namespace tidegauge::simulation::attention_memory {

void add_efficient(const KernelCall& call, KernelRequests& requests);
void add_efficient_backward(const KernelCall& call, KernelRequests& requests);
void add_flash(const KernelCall& call, KernelRequests& requests);
void add_flash_backward(const KernelCall& call, KernelRequests& requests);
void add_cudnn(const KernelCall& call, KernelRequests& requests);
void add_cudnn_backward(const KernelCall& call, KernelRequests& requests);

}  // namespace tidegauge::simulation::attention_memory
