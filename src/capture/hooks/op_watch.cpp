// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_watch.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>

#include "capture/compat/dispatch_key.h"
#include "capture/hooks/allocation_failure.h"
#include "capture/hooks/allocator_channel.h"
#include "capture/hooks/moment_facts.h"
#include "capture/modules/birth_stacks.h"
#include "capture/storages/tensor_storages.h"

namespace tidegauge {
namespace {

/// A view alone does not register a meta storage: modes that make fake tensors (such as DTensor's
/// sharding propagation) wrap storages that were made while nothing was observed.
bool is_unknown_on_meta(c10::StorageImpl& storage, const at::Tensor& tensor) {
  return storage.device_type() == c10::kMeta && !tensor.key_set().has(dispatch_key::kCarried) &&
         !OwnContext::is_on(storage._mutable_data_ptr_no_checks());
}

const void* memory_of(c10::StorageImpl* storage) {
  return storage->_mutable_data_ptr_no_checks().get();
}

}  // namespace

OpWatch::OpWatch(const OpFacts& facts, const void* fake_mode) noexcept
    : facts_(facts), fake_mode_(fake_mode), pending_(StorageRegistry::begin_op()) {
  try {
    running_ = observe_running_node();
    if (facts_.makes_storages) stack_ = python_stacks::collect();
  } catch (const std::exception& error) {
    note_failure(error.what());
  }
}

void OpWatch::abandon() noexcept {
  const auto lock = StorageRegistry::lock();
  StorageRegistry::get().end_op(pending_);
}

void OpWatch::note_exception(const std::exception& error) noexcept {
  try {
    const auto failed = allocation_failure::read(error);
    if (!failed) return;
    OpId op;
    {
      const auto lock = StorageRegistry::lock();
      StorageRegistry::get().end_op(pending_);  // reports the frees before the failure
      is_over_ = true;
      op = op_id(facts_);
    }
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    allocation_failure::notify(*failed, op,
                               torch_error ? torch_error->what_without_backtrace() : error.what());
  } catch (const std::exception& own) {
    note_failure(own.what());
  }
}

void OpWatch::add_argument(const at::Tensor& tensor) noexcept {
  try {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      AllocatorChannel::take_over(storage);
      if (facts_.is_lazy_clone) StorageRegistry::get().release_context(storage);
      arguments_.emplace_back(storage, memory_of(storage));
    });
  } catch (const std::exception& error) {
    note_failure(error.what());
  }
}

void OpWatch::Results::observe(const at::Tensor& tensor, size_t position) noexcept {
  try {
    visit_storages(tensor, [&](c10::StorageImpl* storage) {
      watch_.observe_storage(storage, tensor, position);
    });
  } catch (const std::exception& error) {
    note_failure(error.what());
  }
}

void OpWatch::observe_storage(c10::StorageImpl* storage, const at::Tensor& tensor,
                              size_t position) {
  StorageRegistry& registry = StorageRegistry::get();
  if (facts_.returns_only_arguments && is_unknown_on_meta(*storage, tensor)) return;
  if (facts_.written != 0 && ((facts_.written >> position) & 1) != 0) {
    registry.note_written(pending_, storage);
  }
  ObservedStorage observed = registry.observe(storage);
  if (!observed.id) return;
  if (!observed.is_known_to_all) {
    observed.tensor = tensor.unsafeGetTensorImpl();
    observed.stack = stack_;
    const bool was_there_before =
        facts_.returns_only_arguments ||
        std::find(arguments_.begin(), arguments_.end(),
                  StorageMemory{storage, memory_of(storage)}) != arguments_.end();
    // A storage that existed before was not made by the op, even if no listener knew it.
    const bool is_made = observed.is_new && !was_there_before;
    registry.listeners().notify_observed(observed, was_there_before,
                                         moment::birth_facts(running_.task),
                                         is_made ? op_id(facts_) : OpId{}, fake_mode_);
    registry.mark_known(observed);
  }
  if (running_.gradient_listeners != 0) notify_gradient(running_, observed.id);
}

Failures& OpWatch::failures() {
  static auto* all = new Failures;
  return *all;
}

void OpWatch::note_failure(const char* what) noexcept { failures().note("an op", what); }

}  // namespace tidegauge
