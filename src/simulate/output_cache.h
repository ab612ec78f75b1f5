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

/// An op and all arguments that can affect the shapes of its results, as numbers.
using CallKey = c10::SmallVector<int64_t, 96>;

/// Empty if an argument cannot be expressed in numbers; such a call is not cached.
std::optional<CallKey> make_call_key(const OpTraits& traits,
                                     std::span<const c10::IValue> arguments);

/// One result of a call, in terms of its arguments.
struct OutputShape {
  enum class Kind : uint8_t {
    Undefined,  ///< an undefined tensor
    Number,     ///< not a tensor: `number`
    Argument,   ///< the argument itself
    View,       ///< a view of an argument's storage
    New,        ///< a tensor with a new storage
  };
  Kind kind = Kind::New;
  c10::IValue number{};       ///< Number: the value, or None
  int argument = -1;          ///< Argument, View: position of the argument
  int item = -1;              ///< position in that argument if it is a list, else -1
  int64_t offset = 0;         ///< View: relative to the argument's storage offset
  int64_t storage_bytes = 0;  ///< New
  c10::SmallVector<int64_t, 5> sizes{};
  c10::SmallVector<int64_t, 5> strides{};
  caffe2::TypeMeta dtype{};
  c10::DispatchKeySet lazy_bits{};  ///< see kLazyBits
};

struct OutputList {
  bool is_list = false;
  std::vector<OutputShape> outputs;
};

/// All results of a call.
using CallShape = std::vector<OutputList>;

/// Describes the results of a call in terms of its arguments; empty if that is not possible.
std::optional<CallShape> describe(std::span<const c10::IValue> arguments,
                                  std::span<const c10::IValue> results);

/// Makes new results from such a description, on `device`.
void build(const CallShape& shape, std::span<const c10::IValue> arguments, c10::Device device,
           std::vector<c10::IValue>& results);

/// Cache of result shapes. A meta kernel, often written in Python, takes up to milliseconds, and a
/// training step repeats the same few hundred calls. Thread-safe. Cleared when it reaches
/// `kMaxEntries`: a run with that many different calls does not profit from it.
class OutputCache {
 public:
  static constexpr size_t kMaxEntries = 1 << 16;

  struct Entry {
    std::optional<CallShape> shape;  ///< empty: the results of this call cannot be rebuilt
  };
  /// Null if the call is not in the cache.
  static std::shared_ptr<const Entry> find(const CallKey& key);
  static void add(CallKey key, Entry entry);
  static void clear();
  static size_t size();
};

}  // namespace tidegauge::simulation
