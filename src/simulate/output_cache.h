// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "simulate/op_traits.h"

namespace tidegauge::simulation {

/// An op and all of its arguments that its results' shapes may depend on.
using CallKey = c10::SmallVector<int64_t, 96>;

/// Empty where an argument cannot be put into numbers: then the call is not remembered.
std::optional<CallKey> make_call_key(const OpTraits& traits,
                                     std::span<const c10::IValue> arguments);

/// One result of a call, in terms of its arguments.
struct OutputShape {
  enum class Kind : uint8_t {
    Undefined,  ///< an undefined tensor
    Number,     ///< no tensor: `number`
    Argument,   ///< the argument itself
    View,       ///< of an argument's storage
    New,
  };
  Kind kind = Kind::New;
  c10::IValue number{};       ///< of Number; none for a result that is None
  int argument = -1;          ///< of Argument and View
  int item = -1;              ///< of a list; -1: the argument is no list
  int64_t offset = 0;         ///< View: from the argument's
  int64_t storage_bytes = 0;  ///< New
  c10::SmallVector<int64_t, 5> sizes{};
  c10::SmallVector<int64_t, 5> strides{};
  caffe2::TypeMeta dtype{};
  c10::DispatchKeySet lazy_bits{};  ///< conjugate, negative
};

struct OutputList {
  bool is_list = false;
  std::vector<OutputShape> outputs;
};

/// All results of a call.
using CallShape = std::vector<OutputList>;

/// Describes what a call has returned; empty if it cannot be said in terms of `arguments`, which
/// are those it was called with.
std::optional<CallShape> describe(std::span<const c10::IValue> arguments,
                                  std::span<const c10::IValue> results);

/// Makes the results of such a call anew, on `device`.
void build(const CallShape& shape, std::span<const c10::IValue> arguments, c10::Device device,
           std::vector<c10::IValue>& results);

/// What calls returned. A meta kernel, often one of Python's, costs up to milliseconds; a step asks
/// the same few hundred questions again and again. Thread-safe. At `kMaxEntries` it begins anew: a
/// run with that many different calls has no use for it.
class OutputCache {
 public:
  static constexpr size_t kMaxEntries = 1 << 16;

  /// Null: not known. Known to be not repeatable: an entry without `shape`.
  struct Entry {
    std::optional<CallShape> shape;
  };
  static std::shared_ptr<const Entry> find(const CallKey& key);
  static void add(CallKey key, Entry entry);
  static void clear();
  static size_t size();
};

}  // namespace tidegauge::simulation
