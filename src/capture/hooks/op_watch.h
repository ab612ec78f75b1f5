// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "capture/hooks/op_facts.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/pending_frees.h"
#include "capture/storages/storage_registry.h"
#include "core/events/ids.h"
#include "core/util/failures.h"

namespace tidegauge {

/// Watches one op of this thread from before to after its run, and notifies the listeners of the
/// storages that it makes, finds and frees. Never throws; our own failures are counted.
///
///     OpWatch watch(facts);
///     if (facts.needs_arguments()) watch.add_argument(...);
///     watch.run([&] { ... });
///     OpWatch::Results results(watch);
///     results.observe(tensor, position);
class OpWatch {
 public:
  /// `fake_mode`: the FakeTensorMode that the op runs under; null for an op on real memory.
  explicit OpWatch(const OpFacts& facts, const void* fake_mode = nullptr) noexcept;
  ~OpWatch() {
    if (!is_over_) abandon();
  }
  OpWatch(const OpWatch&) = delete;
  OpWatch& operator=(const OpWatch&) = delete;

  void add_argument(const at::Tensor& tensor) noexcept;
  /// Runs the op. If an allocation fails, notifies the listeners (allocation_failure.h) and
  /// rethrows the exception.
  template <typename Op>
  decltype(auto) run(Op&& op) {
    try {
      return op();
    } catch (const std::exception& error) {
      note_exception(error);
      throw;
    }
  }

  /// Create it when the op has run. Holds the lock of StorageRegistry until it is destroyed.
  class Results {
   public:
    explicit Results(OpWatch& watch) noexcept : watch_(watch) {
      StorageRegistry::get().mutex().lock();
      watch_.is_over_ = true;
      StorageRegistry::get().poll(4);
    }
    ~Results() {
      StorageRegistry::get().end_op(watch_.pending_);
      StorageRegistry::get().mutex().unlock();
    }
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;

    void observe(const at::Tensor& tensor, size_t position) noexcept;

   private:
    OpWatch& watch_;
  };

  const OpFacts& facts() const { return facts_; }
  const RunningNode& running() const { return running_; }

  /// Failures of our own code, of all ops of the process. The program does not see them.
  static Failures& failures();
  static void note_failure(const char* what) noexcept;

 private:
  /// A storage and its memory before the op runs. The op may replace the memory.
  using StorageMemory = std::pair<const c10::StorageImpl*, const void*>;

  void abandon() noexcept;
  void note_exception(const std::exception& error) noexcept;
  void observe_storage(c10::StorageImpl* storage, const at::Tensor& tensor, size_t position);

  const OpFacts& facts_;
  const void* const fake_mode_;
  PendingFrees& pending_;
  StackId stack_;  // the Python stack, if a listener needs it
  RunningNode running_;
  bool is_over_ = false;
  c10::SmallVector<StorageMemory, 4> arguments_;
};

}  // namespace tidegauge
