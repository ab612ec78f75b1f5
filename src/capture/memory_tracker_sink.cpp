// SPDX-License-Identifier: BSD-3-Clause
// What a tracker tells its EventSink beside the events: names, and the first tensor of a storage.
#include <c10/core/ScalarType.h>
#include <c10/core/TensorImpl.h>

#include <mutex>
#include <utility>

#include "capture/memory_tracker.h"
#include "capture/op_watch.h"
#include "capture/storage_capture.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// As torch.dtype prints it, without its "torch.".
std::string_view dtype_name(caffe2::TypeMeta dtype) {
  if (!dtype.isScalarType() || dtype.toScalarType() >= c10::ScalarType::Undefined) return {};
  return c10::getDtypeNames(dtype.toScalarType()).first;
}

}  // namespace

void MemoryTracker::record_to(std::shared_ptr<EventSink> sink) {
  const std::lock_guard lock(StorageCapture::get().mutex());
  if (ledger_.now().sequence != 0) {
    throw UsageError(
        "the tracker has seen events already; say where to record when it is made, before anything"
        " is tracked");
  }
  sink_ = std::move(sink);
}

void MemoryTracker::name_class(ModuleId module, std::string_view class_name) {
  const std::lock_guard lock(StorageCapture::get().mutex());
  if (!sink_) return;
  named_modules_.insert(module);
  sink_->name_module(module, modules_->name(module), class_name);
}

void MemoryTracker::tell_sink(const Event& event, const c10::TensorImpl* tensor, StackId stack) {
  if (event.module && named_modules_.insert(event.module).second) {
    sink_->name_module(event.module, modules_->name(event.module), {});
  }
  while (named_ops_ < event.op.value) {
    ++named_ops_;
    sink_->name_op(OpId(named_ops_), op_name(OpId(named_ops_)));
  }
  if (stack && named_stacks_.insert(stack).second) sink_->name_stack(stack, stack_text(stack));
  // Symbolic and nested sizes have no plain numbers; those of a sparse tensor are not its parts'.
  if (tensor == nullptr || !tensor->has_storage() || tensor->has_symbolic_sizes_strides() ||
      tensor->is_nested()) {
    sink_->record(event, nullptr, stack);
    return;
  }
  const c10::IntArrayRef sizes = tensor->sizes();
  const TensorFacts facts{dtype_name(tensor->dtype()), {sizes.data(), sizes.size()}};
  sink_->record(event, &facts, stack);
}

/// A module gets a longer name when it turns out to be part of another.
void MemoryTracker::tell_names() {
  if (!sink_) return;
  for (const ModuleId module : named_modules_) {
    const std::string name = modules_->name(module);
    if (!name.empty()) sink_->name_module(module, name, {});
  }
}

}  // namespace tidegauge
