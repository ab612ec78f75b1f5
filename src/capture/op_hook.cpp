// SPDX-License-Identifier: BSD-3-Clause
#include "capture/op_hook.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "capture/memory_tracker.h"
#include "capture/storage_capture.h"
#include "tidegauge/errors.h"

namespace tidegauge::op_hook {
namespace {

using c10::DispatchKey;
using c10::OperatorHandle;
using torch::autograd::AccumulateGrad;
using torch::autograd::Node;
using torch::jit::Stack;
/// A storage and its memory, before an op: it may give the storage other memory (copy-on-write).
using StorageMemory = std::pair<const c10::StorageImpl*, const void*>;
using Storages = c10::SmallVector<StorageMemory, 8>;

StorageMemory memory_of(c10::StorageImpl* storage) {
  return {storage, storage->_mutable_data_ptr_no_checks().get()};
}

/// Changes with every start and stop, so that what a thread has told is told again.
std::atomic<uint64_t> epoch{1};

/// The node that this thread has told the trackers of last.
struct Told {
  uint64_t epoch = 0;
  int task = -1;
  const Node* node = nullptr;
  uint64_t sequence = 0;
  /// Of an AccumulateGrad: the trackers, by position, that know its leaf as a parameter.
  uint64_t gradient_trackers = 0;
};
thread_local constinit Told told{};
thread_local constinit int start_count = 0;

struct Failures {
  std::mutex mutex;
  int64_t count = 0;
  std::string first;
};
Failures& failures() {
  static auto* all = new Failures;
  return *all;
}

/// Ops are numbered in the order of their first birth; a schema lives as long as the process. With
/// the lock of StorageCapture held.
OpId op_id(const c10::FunctionSchema& schema) {
  static auto* ids = new ska::flat_hash_map<const c10::FunctionSchema*, uint32_t>;
  return OpId(ids->emplace(&schema, ids->size() + 1).first->second);
}

/// `torch.tensor` builds its tensor out of our sight and then lifts it: that is its birth.
bool makes_fresh(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema* lift =
      &c10::Dispatcher::singleton().findSchemaOrThrow("aten::lift_fresh", "").schema();
  return &schema == lift;
}

template <typename Visit>
void visit_tensors(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList().vec()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) visit_tensors(item, visit);
  }
}

class Op {
 public:
  Op(const OperatorHandle& op, const Stack& stack) : schema_(op.schema()) {
    StorageCapture::get().begin_op();
    try {
      tell_node();
      note_arguments(stack);
    } catch (const std::exception& error) {
      fail(error.what());
    }
  }
  ~Op() {
    if (is_finished_) return;
    const std::lock_guard lock(StorageCapture::get().mutex());
    StorageCapture::get().end_op();
  }
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  void finish(const Stack& stack) {
    const std::lock_guard lock(StorageCapture::get().mutex());
    is_finished_ = true;
    try {
      tell_outputs(stack);
    } catch (const std::exception& error) {
      fail(error.what());
    }
    StorageCapture::get().end_op();
  }

 private:
  static void fail(const char* what) {
    const std::lock_guard lock(failures().mutex);
    if (failures().count++ == 0) failures().first = what;
  }

  void tell_node() {
    const int task = torch::autograd::get_current_graph_task_id();
    const uint64_t now = epoch.load(std::memory_order_relaxed);
    if (task == -1) {
      if (told.task == -1 && told.epoch == now) return;
      const std::lock_guard lock(StorageCapture::get().mutex());
      for (MemoryTracker* tracker : StorageCapture::get().trackers()) {
        if (tracker->is_started()) tracker->run_outside();
      }
      told = {now, -1, nullptr, 0, 0};
      return;
    }
    const auto node = torch::autograd::get_current_node();
    if (!node) return;
    if (told.epoch != now || told.task != task || told.node != node.get() ||
        told.sequence != node->sequence_nr()) {
      tell_node(now, task, *node);
    }
    gradient_trackers_ = told.gradient_trackers;
  }

  static void tell_node(uint64_t now, int task, const Node& node) {
    uint64_t gradient_trackers = 0;
    if (node.sequence_nr() == UINT64_MAX) {
      const auto* accumulator = dynamic_cast<const AccumulateGrad*>(&node);
      if (accumulator != nullptr) gradient_trackers = find_parameter(accumulator->variable);
    }
    const std::lock_guard lock(StorageCapture::get().mutex());
    for (MemoryTracker* tracker : StorageCapture::get().trackers()) {
      if (tracker->is_started()) tracker->run_node(task, node);
    }
    told = {now, task, &node, node.sequence_nr(), gradient_trackers};
  }

  /// The trackers, by position, that know the leaf as a parameter. It may be one that none has
  /// seen: used functionally, or replaced.
  static uint64_t find_parameter(const at::Tensor& leaf) {
    StorageCapture& capture = StorageCapture::get();
    std::vector<std::shared_ptr<MemoryTracker>> unaware;
    uint64_t aware = 0;
    {
      const std::lock_guard lock(capture.mutex());
      for (size_t i = 0; i < std::min<size_t>(capture.trackers().size(), 64); ++i) {
        MemoryTracker* tracker = capture.trackers()[i];
        if (!tracker->is_started()) continue;
        if (tracker->knows_parameter(leaf)) {
          aware |= uint64_t{1} << i;
        } else if (auto alive = tracker->weak_from_this().lock()) {
          unaware.push_back(std::move(alive));
        }
      }
    }
    for (const auto& tracker : unaware) {
      if (!tracker->is_parameter()(leaf)) continue;
      tracker->label(leaf, Role::IsParameter, Since::Birth);
      const std::lock_guard lock(capture.mutex());
      const auto& all = capture.trackers();
      const auto position = std::find(all.begin(), all.end(), tracker.get()) - all.begin();
      if (position < 64) aware |= uint64_t{1} << position;
    }
    return aware;
  }

  /// Views and in-place ops return what was there before.
  void note_arguments(const Stack& stack) {
    const auto& returns = schema_.returns();
    if (std::none_of(returns.begin(), returns.end(),
                     [](const auto& r) { return r.alias_info() != nullptr; }) ||
        makes_fresh(schema_)) {
      return;
    }
    const size_t count = schema_.arguments().size();
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      visit_tensors(stack[i], [&](const at::Tensor& tensor) {
        visit_storages(
            tensor, [&](c10::StorageImpl* storage) { arguments_.push_back(memory_of(storage)); });
      });
    }
  }

  void tell_outputs(const Stack& stack) {
    const auto& returns = schema_.returns();
    StorageCapture& capture = StorageCapture::get();
    capture.poll(4);
    for (size_t i = 0; i < returns.size(); ++i) {
      const auto* alias = returns[i].alias_info();
      const c10::IValue& value = stack[stack.size() - returns.size() + i];
      visit_tensors(value, [&](const at::Tensor& tensor) {
        visit_storages(tensor, [&](c10::StorageImpl* storage) {
          if (alias != nullptr && alias->isWrite()) capture.note_written(storage);
          const bool was_there_before = std::find(arguments_.begin(), arguments_.end(),
                                                  memory_of(storage)) != arguments_.end();
          const SeenStorage seen = capture.see(storage);
          if (!seen.id) return;
          if (!seen.is_told) {
            MemoryTracker::tell_seen(seen, was_there_before, seen.is_new ? op_id(schema_) : OpId{});
            capture.mark_told(storage);
          }
          if (gradient_trackers_ != 0) tell_gradient(seen.id);
        });
      });
    }
  }

  void tell_gradient(StorageId id) {
    const auto& trackers = StorageCapture::get().trackers();
    for (size_t i = 0; i < std::min<size_t>(trackers.size(), 64); ++i) {
      if (((gradient_trackers_ >> i) & 1) != 0) trackers[i]->mark_gradient(id);
    }
  }

  const c10::FunctionSchema& schema_;
  uint64_t gradient_trackers_ = 0;
  bool is_finished_ = false;
  Storages arguments_;
};

void observe(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, DispatchKey::Fake);
  const c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::Fake);
  Op watched(op, *stack);
  op.redispatchBoxed(keys & kBelow, stack);
  watched.finish(*stack);
}

/// Registered at the first use and never taken back: a static initializer would claim the key for
/// programs that only load us.
struct Registration {
  std::once_flag once;
  std::optional<c10::RegistrationHandleRAII> handle;
};

void register_fallback() {
  static auto* registration = new Registration;
  std::call_once(registration->once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    if (dispatcher.hasBackendFallbackForDispatchKey(DispatchKey::Fake)) {
      throw NotSupported(
          "another library has registered a fallback for torch's dispatch key Fake, which "
          "tidegauge needs to see operators; load tidegauge without that library");
    }
    registration->handle.emplace(dispatcher.registerFallback(
        DispatchKey::Fake, c10::KernelFunction::makeFromBoxedFunction<&observe>(), "tidegauge"));
  });
}

}  // namespace

void start_in_this_thread() {
  register_fallback();
  if (start_count++ == 0) c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, true);
  tell_again();
}

void stop_in_this_thread() {
  if (start_count == 0) return;
  --start_count;
  if (start_count == 0) c10::impl::tls_set_dispatch_key_included(DispatchKey::Fake, false);
  tell_again();
}

void tell_again() { ++epoch; }

int64_t failure_count() {
  const std::lock_guard lock(failures().mutex);
  return failures().count;
}

std::string first_failure() {
  const std::lock_guard lock(failures().mutex);
  return failures().first;
}

}  // namespace tidegauge::op_hook
