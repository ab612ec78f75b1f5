// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "capture/hooks/running_node.h"
#include "capture/storages/storage_capture.h"
#include "core/events/ids.h"

namespace tidegauge {

/// What the schema of an op says of the storages behind its results.
struct OpFacts {
  const c10::FunctionSchema* schema = nullptr;
  mutable OpId op{};  ///< its number, once it has made something; guarded by StorageCapture's lock
  bool returns_arguments = false;       ///< some result is a view of an argument, or one itself
  bool returns_only_arguments = false;  ///< all are, and none is written to: a view
  uint64_t written = 0;                 ///< results, by position, that the op writes to
  bool is_lazy_clone = false;           ///< wants the memory of its argument as torch made it
  bool makes_storages = false;          ///< some result is none of its arguments
  bool makes_only = false;              ///< and its arguments do not matter

  static OpFacts read(const c10::FunctionSchema& schema);
};

/// Of an op that made a storage, "aten::mm", "aten::add.out". With the lock of StorageCapture held.
std::string op_name(OpId op);

/// Watches one op of this thread, from before it runs to after it, and tells the trackers which
/// storages it made, found and freed. Never throws: what goes wrong in here is counted.
///
///     OpWatch watch(facts);
///     if (watch.wants_arguments()) watch.add_argument(...);
///     ... the op runs ...
///     OpWatch::Results results(watch);
///     results.tell(tensor, position);
class OpWatch {
 public:
  /// `fake_mode`: the one that the op runs under, none for an op on real memory.
  explicit OpWatch(const OpFacts& facts, const void* fake_mode = nullptr) noexcept;
  ~OpWatch() {
    if (!is_over_) abandon();
  }
  OpWatch(const OpWatch&) = delete;
  OpWatch& operator=(const OpWatch&) = delete;

  /// Given an op that only returns this argument, or a view of it: whether the trackers know its
  /// memory. Then they are told here what there is to tell.
  static bool knows(const at::Tensor& argument) noexcept;

  static bool wants_arguments(const OpFacts& facts) {
    return (facts.returns_arguments && !facts.returns_only_arguments) || facts.is_lazy_clone;
  }
  bool wants_arguments() const { return wants_arguments(facts_); }
  void add_argument(const at::Tensor& tensor) noexcept;
  /// Runs the op. If it has no memory, trackers are told (allocation_failure.h); what it throws
  /// goes on as it is.
  template <typename Op>
  decltype(auto) run(Op&& op) {
    try {
      return op();
    } catch (const std::exception& error) {
      note_failure(error);
      throw;
    }
  }

  /// The op is over, and this is its one result.
  void finish(const at::Tensor& result) noexcept;
  /// The op is over. Holds the lock of StorageCapture as long as it lives.
  class Results {
   public:
    explicit Results(OpWatch& watch) noexcept;
    ~Results();
    Results(const Results&) = delete;
    Results& operator=(const Results&) = delete;

    void tell(const at::Tensor& tensor, size_t position) noexcept;

   private:
    OpWatch& watch_;
  };

  static int64_t failure_count();
  static std::string first_failure();

 private:
  /// A storage and its memory, before the op: it may give the storage other memory (copy-on-write).
  using StorageMemory = std::pair<const c10::StorageImpl*, const void*>;

  void abandon() noexcept;
  void note_failure(const std::exception& error) noexcept;
  bool tell_birth(const at::Tensor& result);
  void tell_storage(c10::StorageImpl* storage, const at::Tensor& tensor, size_t position);

  const OpFacts& facts_;
  const void* const fake_mode_;
  StorageCapture::Pending& pending_;
  StackId stack_;  // Python's, if somebody wants it
  RunningNode running_;
  bool is_over_ = false;
  c10::SmallVector<StorageMemory, 4> arguments_;
};

}  // namespace tidegauge
