// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/list_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "simulate/ceil_div.h"
#include "simulate/claimed_device.h"

namespace tidegauge::simulation::list_memory {
namespace {

using Handle = KernelRequests::Handle;

constexpr int64_t kEntry = sizeof(int64_t);
constexpr int64_t kBlockBytes = 2048;  // what a block of threads copies at once

}  // namespace

/// Arguments: tensors, dimension, number of chunks, perhaps the result. The table has six numbers
/// for each tensor and one for each block of a chunk.
void add_chunk_cat(const KernelCall& call, KernelRequests& requests) {
  const std::vector<at::Tensor> tensors = call.arguments[0].toTensorVector();
  const int64_t dimension = call.arguments[1].toInt(), chunks = call.arguments[2].toInt();
  const at::Tensor& result =
      call.arguments.size() > 3 ? call.arguments[3].toTensor() : call.results[0].toTensor();
  requests.result(0);
  const auto item_bytes = static_cast<int64_t>(result.itemsize());
  int64_t blocks = 0;
  for (const at::Tensor& tensor : tensors) {
    const int64_t size = tensor.size(dimension);
    const int64_t chunk = size == 0 ? 0 : ceil_div(size, chunks) * (tensor.numel() / size);
    blocks += ceil_div(chunk * item_bytes, kBlockBytes);
  }
  const auto count = static_cast<int64_t>(tensors.size());
  requests.release(requests.request(kEntry * (6 * count + 2 + blocks)));
}

/// Arguments: the tensor, the sizes, the dimension; the results are the parts. The table has four
/// numbers for each part and one for each block of a row. A block copies more at once if there are
/// many rows.
void add_split_copy(const KernelCall& call, KernelRequests& requests) {
  const at::Tensor& source = call.arguments[0].toTensor();
  const auto parts = call.arguments[1].toIntVector();
  const int64_t dimension = call.arguments[2].toInt();
  const int64_t size = source.size(dimension);
  if (size == 0) return;
  int64_t rows = 1;
  for (int64_t i = 0; i < dimension; ++i) rows *= source.size(i);
  const int64_t unit_bytes = source.numel() / rows / size * static_cast<int64_t>(source.itemsize());
  const auto count_blocks = [&](int64_t block_bytes) {
    int64_t blocks = 0;
    for (const int64_t part : parts) blocks += ceil_div(part * unit_bytes, block_bytes);
    return blocks;
  };
  const ClaimedDevice& device = claimed_device();
  const int64_t most = device.multiprocessors * device.threads_per_multiprocessor / 64;
  const int64_t blocks = count_blocks(kBlockBytes);
  const auto balanced =
      std::llround(std::sqrt(static_cast<double>(blocks * rows) / static_cast<double>(most)));
  const int64_t factor = std::max<int64_t>({1, balanced, ceil_div(blocks, most)});
  const auto count = static_cast<int64_t>(parts.size());
  requests.release(requests.request(kEntry * (4 * count + 1 + count_blocks(kBlockBytes * factor))));
}

/// The address of each result, and a partial norm of each 65,536 elements.
void add_norms(const KernelCall& call, KernelRequests& requests) {
  constexpr int64_t kChunk = 65536;
  const std::vector<at::Tensor> tensors = call.arguments[0].toTensorVector();
  int64_t chunks = 0;
  for (const at::Tensor& tensor : tensors) chunks += ceil_div(tensor.numel(), kChunk);
  const auto count = static_cast<int64_t>(tensors.size());
  const Handle first = requests.request(kEntry * (count + 1));
  requests.request(chunks * static_cast<int64_t>(sizeof(float)));
  requests.result(0);
  requests.release_all_from(first);
}

}  // namespace tidegauge::simulation::list_memory
