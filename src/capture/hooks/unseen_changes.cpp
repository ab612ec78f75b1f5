// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/unseen_changes.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <string>

#include "capture/compat/cuda_adapter.h"
#include "capture/compat/fake_mode.h"
#include "capture/hooks/allocator_channel.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_watch.h"
#include "capture/modules/birth_stacks.h"
#include "capture/storages/storage_registry.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge {
namespace {

/// The lock must be held.
void observe_made(c10::StorageImpl* storage, const c10::TensorImpl* tensor, StackId stack) {
  StorageRegistry& registry = StorageRegistry::get();
  // Inside a FakeTensorMode, a meta storage that the mode did not register is not counted.
  const bool is_unregistered = storage->device_type() == c10::kMeta &&
                               !OwnContext::is_on(storage->_mutable_data_ptr_no_checks());
  if (is_unregistered && fake_mode::active() != nullptr) return;
  ObservedStorage observed = registry.observe(storage);
  if (!observed.id) return;
  observed.tensor = tensor;
  observed.stack = stack;
  const uint8_t facts = moment::birth_facts(torch::autograd::get_current_graph_task_id());
  registry.listeners().notify_observed(observed, /*was_there_before=*/false, facts, {},
                                       OwnContext::fake_mode(*storage));
}

}  // namespace

void observe_made(const at::Tensor& tensor) {
  const StackId stack = python_stacks::collect();
  const auto lock = StorageRegistry::lock();
  visit_storages(tensor, [&](c10::StorageImpl* storage) {
    observe_made(storage, tensor.unsafeGetTensorImpl(), stack);
  });
}

void begin_resize(c10::StorageImpl* storage) {
  AllocatorChannel::take_over(storage);
  StorageRegistry::begin_op();
}

void end_resize(c10::StorageImpl* storage) {
  StorageRegistry& registry = StorageRegistry::get();
  PendingFrees& pending = PendingFrees::of_this_thread();
  const auto lock = StorageRegistry::lock();
  if (!registry.finish_resize(pending, storage)) observe_made(storage, nullptr, {});
  registry.end_op(pending);
}

void record_device(const DeviceTraceEntry& entry) {
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().record_device(entry);
}

void watch_devices() {
  cuda_adapter::attach({&record_device, [](const char* why) {
                          const std::string text =
                              std::string("tidegauge cannot observe the CUDA allocator (") + why +
                              "), so it counts only memory that a tensor on the device shows";
                          TORCH_WARN(text);
                          OpWatch::failures().note("the CUDA allocator", text);
                        }});
}

}  // namespace tidegauge
