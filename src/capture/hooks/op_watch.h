// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "capture/hooks/op_facts.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/pending_frees.h"
#include "core/events/ids.h"

namespace tidegauge {

/// Watches one op of this thread, from before it runs to after it, and notifies the listeners of
/// the storages that it made, found and freed. Never throws: our own failures are counted.
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
  /// Runs the op. If memory runs out, the listeners are notified (allocation_failure.h); the
  /// exception goes on as it is.
  template <typename Op>
  decltype(auto) run(Op&& op) {
    try {
      return op();
    } catch (const std::exception& error) {
      note_exception(error);
      throw;
    }
  }

  /// The op is over. Holds the lock of StorageRegistry as long as it lives.
  class Results {
   public:
    explicit Results(OpWatch& watch) noexcept;
    ~Results();
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;

    void observe(const at::Tensor& tensor, size_t position) noexcept;

   private:
    OpWatch& watch_;
  };
  /// The op is over and has this one result.
  void finish(const at::Tensor& result) noexcept;

  /// A shorter way for `finish`, set by capture/fast, for an op that only makes storages: reports
  /// the birth, or returns false with nothing done. With the lock held.
  using FastBirth = bool (*)(const at::Tensor& result, uint8_t birth_facts, const OpFacts& facts);
  static void set_fast_birth(FastBirth birth);

  /// Counts a failure of our own code, which is kept from the program.
  static void note_failure(const char* what);
  static int64_t failure_count();
  static std::string first_failure();

 private:
  /// A storage and its memory before the op, which may give the storage other memory.
  using StorageMemory = std::pair<const c10::StorageImpl*, const void*>;

  void abandon() noexcept;
  void note_exception(const std::exception& error) noexcept;
  void observe_storage(c10::StorageImpl* storage, const at::Tensor& tensor, size_t position);

  const OpFacts& facts_;
  const void* const fake_mode_;
  PendingFrees& pending_;
  StackId stack_;  // Python's, if a listener wants it
  RunningNode running_;
  bool is_over_ = false;
  c10::SmallVector<StorageMemory, 4> arguments_;
};

}  // namespace tidegauge
