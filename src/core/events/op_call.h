// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidegauge {

/// A tensor that an op reads or makes, without its data.
struct OpTensor {
  std::vector<int64_t> sizes{};
  std::string dtype{};  ///< "bfloat16"
  int64_t element_bytes = 0;
  int64_t stored_elements = 0;  ///< elements in memory: an expanded dimension counts once
  bool is_on_cpu = false;
};

/// An argument or a result of an op: its tensors, or its integers (booleans are 0 and 1). Both are
/// empty for anything else: None, floating-point numbers, text.
struct OpValue {
  std::string name{};  ///< of the argument; empty for most results
  std::vector<OpTensor> tensors{};
  std::vector<int64_t> integers{};
  bool is_written = false;   ///< an argument that the op writes to
  bool is_argument = false;  ///< a result that is an argument, or a view of one
  int64_t group_size = 0;    ///< ranks, if it is a process group
};

/// All calls of an op with equal shapes and integers are one OpCall.
struct OpCall {
  std::string op{};  ///< "aten::mm", "aten::add.Tensor"
  std::vector<OpValue> arguments{};
  std::vector<OpValue> results{};
  bool is_view = false;  ///< it only returns arguments or views of them, and writes to none
};

/// What happened in a thread, in the order of the program.
struct OpEntry {
  enum class Kind : uint8_t {
    Op,
    Record,  ///< an event was recorded on `stream`
    Wait,    ///< `stream` waits for the event
    Enter,   ///< a module begins its forward or backward, if a memory tracker is entered, too
    Leave,
  };
  Kind kind = Kind::Op;
  uint8_t facts = 0;    ///< BirthFact bits (event.h): backward, recompute, optimizer step
  uint16_t stream = 0;  ///< of the device; 0: the default stream
  uint32_t number = 0;  ///< of the OpCall, the event or the module
};

}  // namespace tidegauge
