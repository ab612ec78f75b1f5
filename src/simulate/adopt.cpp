// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/adopt.h"

#include <unordered_map>

#include "simulate/known_values.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {

std::vector<at::Tensor> adopt(const std::vector<at::Tensor>& tensors, c10::Device device) {
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages;
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    if (is_simulated(tensor)) {
      result.push_back(tensor);
      continue;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.has_storage() && tensor.layout() == c10::kStrided,
                                "a tensor of layout ", tensor.layout(),
                                " cannot be brought into a simulation: only dense tensors can");
    c10::Storage& storage = storages[tensor.storage().unsafeGetStorageImpl()];
    if (!storage)
      storage = SimulatedStorage::make(static_cast<int64_t>(tensor.storage().nbytes()), device);
    auto impl = c10::make_intrusive<SimulatedTensor>(storage, keys_of(tensor.dtype(), device),
                                                     tensor.dtype(), device);
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    result.emplace_back(std::move(impl));
    if (!tensor.is_meta()) known_values::keep_copy(result.back(), tensor);
  }
  return result;
}

}  // namespace tidegauge::simulation
