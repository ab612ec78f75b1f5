// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "simulate/kernel_call.h"

/// The memory that torch's matrix products request on CUDA: copies of arguments whose layout cuBLAS
/// does not accept, and a workspace of cuBLAS or cuBLASLt.
/// Where torch keeps workspaces, it has one for each thread and stream; the thread of a backward is
/// another one.
namespace tidegauge::simulation::product_memory {

/// Forgets the workspaces that were kept.
void reset();

void add_mm(const KernelCall& call, KernelRequests& requests);
void add_addmm(const KernelCall& call, KernelRequests& requests);
void add_bmm(const KernelCall& call, KernelRequests& requests);
void add_baddbmm(const KernelCall& call, KernelRequests& requests);
void add_vector_product(const KernelCall& call, KernelRequests& requests);

}  // namespace tidegauge::simulation::product_memory
