// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/product_memory.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <tuple>

#include "capture/compat/cublas_workspaces.h"
#include "capture/hooks/moment_facts.h"
#include "core/util/spin_lock.h"
#include "simulate/claimed_device.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation::product_memory {
namespace {

using Handle = KernelRequests::Handle;

// torch's defaults. cuBLAS: 4,096 KiB x 8 on Hopper and later; 4,096 KiB x 2 and 16 KiB x 8 before.
constexpr int64_t kLargeCublasBytes = 33'554'432;
constexpr int64_t kCublasBytes = 8'519'680;
constexpr int64_t kCublasLtBytes = 1'048'576;

int64_t cublas_bytes() { return claimed_device().major >= 9 ? kLargeCublasBytes : kCublasBytes; }

/// Where torch keeps a workspace: the device, whether a backward runs, and the stream.
using Place = std::tuple<int, bool, uint16_t>;
struct Kept {
  SpinLock mutex;
  std::set<Place> places;
};
Kept& kept() {
  static auto* all = new Kept;
  return *all;
}

const at::Tensor& tensor(const KernelCall& call, size_t argument) {
  return call.arguments[argument].toTensor();
}

void add_workspace(int64_t size_bytes, const KernelCall& call, KernelRequests& requests) {
  if constexpr (kKeepsCublasWorkspaces) {
    const Place place{as_simulated(call.results[0].toTensor()).counted_device().index(),
                      moment::in_backward(), moment::stream().value};
    const std::lock_guard lock(kept().mutex);
    if (kept().places.insert(place).second) requests.request(cublas_bytes());
  } else {
    requests.release(requests.request(size_bytes));
  }
}

/// cuBLAS needs a matrix whose rows or columns are contiguous; a batch of them likewise.
bool is_accepted(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2), columns = matrix.size(-1);
  return (matrix.stride(-1) == 1 && matrix.stride(-2) >= std::max<int64_t>(1, columns)) ||
         (matrix.stride(-2) == 1 && matrix.stride(-1) >= std::max<int64_t>(1, rows));
}

/// The result, copies of the factors from argument `first` on if they are needed, the workspace.
void add_product(const KernelCall& call, size_t first, int64_t workspace_bytes,
                 KernelRequests& requests) {
  requests.result(0);
  if (call.results[0].toTensor().numel() == 0 || tensor(call, first).numel() == 0) return;
  const Handle copies = requests.next_handle();
  int count = 0;
  for (const size_t argument : {first, first + 1}) {
    const at::Tensor& matrix = tensor(call, argument);
    if (is_accepted(matrix)) continue;
    requests.request(matrix.numel() * static_cast<int64_t>(matrix.itemsize()));
    ++count;
  }
  add_workspace(workspace_bytes, call, requests);
  for (Handle copy = copies + count; copy-- > copies;) requests.release(copy);
}

/// cuBLASLt adds a bias for each column within the product.
bool adds_bias(const KernelCall& call) {
  const at::Tensor& bias = tensor(call, 0);
  const at::Tensor& second = tensor(call, 2);
  return bias.dim() == 1 && bias.is_contiguous() && bias.size(0) == second.size(1) &&
         second.size(0) > 1 && second.size(1) > 1 && call.arguments[3].toScalar().equal(1);
}

}  // namespace

void reset() {
  const std::lock_guard lock(kept().mutex);
  kept().places.clear();
}

void add_mm(const KernelCall& call, KernelRequests& requests) {
  add_product(call, 0, cublas_bytes(), requests);
}

void add_addmm(const KernelCall& call, KernelRequests& requests) {
  add_product(call, 1, adds_bias(call) ? kCublasLtBytes : cublas_bytes(), requests);
}

void add_bmm(const KernelCall& call, KernelRequests& requests) { add_mm(call, requests); }

void add_baddbmm(const KernelCall& call, KernelRequests& requests) {
  add_product(call, 1, cublas_bytes(), requests);
}

void add_vector_product(const KernelCall& call, KernelRequests& requests) {
  requests.result(0);
  add_workspace(cublas_bytes(), call, requests);
}

}  // namespace tidegauge::simulation::product_memory
