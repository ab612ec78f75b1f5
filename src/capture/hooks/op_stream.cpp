// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_stream.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "capture/compat/scalar_type_name.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_watch.h"

namespace tidegauge::op_stream {
namespace {

/// The first word of a value says what follows: its kind in the low byte, then the fields below.
enum class Tag : uint8_t { Other, Tensor, Integers, Tensors, Group };
constexpr int kDtypeShift = 8;   // of a tensor
constexpr int kCpuShift = 16;    // of a tensor
constexpr int kCountShift = 32;  // dimensions, integers or tensors that follow

int64_t make_word(Tag tag, size_t count = 0) {
  return static_cast<int64_t>(tag) | static_cast<int64_t>(count) << kCountShift;
}

void add_tensor(Words& words, const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || impl->has_symbolic_sizes_strides() || impl->layout() != c10::kStrided) {
    words.push_back(make_word(Tag::Other));
    return;
  }
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  const bool is_on_cpu = impl->key_set().has_backend(c10::BackendComponent::CPUBit);
  words.push_back(make_word(Tag::Tensor, sizes.size()) |
                  static_cast<int64_t>(tensor.scalar_type()) << kDtypeShift |
                  static_cast<int64_t>(is_on_cpu) << kCpuShift);
  int64_t stored = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] != 0 || sizes[i] == 0) stored *= sizes[i];
  }
  words.push_back(stored);
  words.append(sizes.begin(), sizes.end());
}

/// The size of a process group; 0 for any other object.
int64_t read_group_size(const c10::IValue& value) {
  static const c10::TypePtr type =
      c10::getCustomClassType<c10::intrusive_ptr<c10d::ProcessGroup>>();
  if (!value.type()->isSubtypeOf(*type)) return 0;
  return value.toCustomClass<c10d::ProcessGroup>()->getSize();
}

/// The size of the group with this name; 0 if there is none.
int64_t read_group_size(const std::string& name) {
  try {
    return c10d::resolve_process_group(name)->getSize();
  } catch (const c10::Error&) {
    return 0;
  }
}

void add_value(Words& words, const c10::IValue& value);

void add_argument(Words& words, const c10::Argument& argument, const c10::IValue& value) {
  if (!value.isString() || argument.name() != "group_name") return add_value(words, value);
  words.push_back(make_word(Tag::Group));
  words.push_back(read_group_size(value.toStringRef()));
}

void add_value(Words& words, const c10::IValue& value) {
  if (value.isTensor()) {
    add_tensor(words, value.toTensor());
  } else if (value.isInt() || value.isBool()) {
    words.push_back(make_word(Tag::Integers, 1));
    words.push_back(value.isInt() ? value.toInt() : static_cast<int64_t>(value.toBool()));
  } else if (value.isList()) {
    const c10::ArrayRef<c10::IValue> list = value.toListRef();
    const bool is_numbers = !list.empty() && (list[0].isInt() || list[0].isBool());
    words.push_back(make_word(is_numbers ? Tag::Integers : Tag::Tensors, list.size()));
    for (const c10::IValue& item : list) {
      if (is_numbers) {
        words.push_back(item.isInt() ? item.toInt() : static_cast<int64_t>(item.toBool()));
      } else {
        add_value(words, item);
      }
    }
  } else if (value.isObject()) {
    words.push_back(make_word(Tag::Group));
    words.push_back(read_group_size(value));
  } else {
    words.push_back(make_word(Tag::Other));
  }
}

class Reader {
 public:
  explicit Reader(std::span<const int64_t> words) : words_(words) {}

  int64_t next() { return words_[place_++]; }
  void read_into(OpValue& value) {
    const int64_t word = next();
    const auto count = static_cast<size_t>(word >> kCountShift);
    switch (static_cast<Tag>(word & 0xff)) {
      case Tag::Tensor:
        return value.tensors.push_back(read_tensor(word, count));
      case Tag::Integers:
        for (size_t i = 0; i < count; ++i) value.integers.push_back(next());
        return;
      case Tag::Tensors:
        for (size_t i = 0; i < count; ++i) read_into(value);
        return;
      case Tag::Group:
        value.group_size = next();
        return;
      case Tag::Other:
        return;
    }
  }

 private:
  OpTensor read_tensor(int64_t word, size_t dimensions) {
    const auto dtype = static_cast<c10::ScalarType>(word >> kDtypeShift & 0xff);
    OpTensor tensor;
    tensor.dtype = scalar_type_name(dtype);
    tensor.element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    tensor.is_on_cpu = (word >> kCpuShift & 1) != 0;
    tensor.stored_elements = next();
    for (size_t i = 0; i < dimensions; ++i) tensor.sizes.push_back(next());
    return tensor;
  }

  std::span<const int64_t> words_;
  size_t place_ = 0;
};

struct Listeners {
  std::mutex mutex;
  std::vector<OpListener*> all;
  uint32_t last_event = 0;
};
Listeners& listeners() {
  static auto* all = new Listeners;
  return *all;
}

}  // namespace

OpCall read_call(std::span<const int64_t> words) {
  Reader reader(words);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): written by the constructor of Call
  const auto& schema = *reinterpret_cast<const c10::FunctionSchema*>(reader.next());
  OpCall call;
  call.op = schema.name();
  if (!schema.overload_name().empty()) call.op += "." + schema.overload_name();
  for (const c10::Argument& argument : schema.arguments()) {
    OpValue& value = call.arguments.emplace_back();
    value.name = argument.name();
    value.is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    reader.read_into(value);
  }
  call.is_view = !schema.returns().empty();
  for (const c10::Argument& result : schema.returns()) {
    OpValue& value = call.results.emplace_back();
    value.is_argument = result.alias_info() != nullptr;
    call.is_view = call.is_view && value.is_argument && !result.alias_info()->isWrite();
    reader.read_into(value);
  }
  return call;
}

void add(OpListener* listener) {
  const std::lock_guard lock(listeners().mutex);
  listeners().all.push_back(listener);
  ++at_every_op.op_listeners;
  ++at_every_op.detours;
}

void remove(OpListener* listener) {
  const std::lock_guard lock(listeners().mutex);
  if (std::erase(listeners().all, listener) == 0) return;
  --at_every_op.op_listeners;
  --at_every_op.detours;
}

bool has_listener_in(const void* fake_mode) {
  if (!has_listeners()) return false;
  const std::lock_guard lock(listeners().mutex);
  return std::ranges::any_of(listeners().all, [fake_mode](const OpListener* listener) {
    return listener->fake_mode() == fake_mode;
  });
}

uint32_t record_event(uint16_t stream) {
  if (!has_listeners()) return 0;
  Listeners& to = listeners();
  const std::lock_guard lock(to.mutex);
  const uint32_t event = ++to.last_event;
  for (OpListener* listener : to.all) listener->event_recorded(event, stream);
  return event;
}

void await_event(uint32_t event, uint16_t stream) {
  if (event == 0 || !has_listeners()) return;
  const std::lock_guard lock(listeners().mutex);
  for (OpListener* listener : listeners().all) listener->event_awaited(event, stream);
}

void report_move(const ModuleActivity& modules, ModuleId module, bool enters) {
  const std::string name = modules.name(module);
  const std::lock_guard lock(listeners().mutex);
  for (OpListener* listener : listeners().all) listener->module_moved(module, name, enters);
}

Call::Call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) noexcept
    : schema_(schema) {
  try {
    words_.push_back(reinterpret_cast<int64_t>(&schema));
    const std::vector<c10::Argument>& arguments = schema.arguments();
    auto value = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
    for (const c10::Argument& argument : arguments) add_argument(words_, argument, *value++);
  } catch (const std::exception& error) {
    is_valid_ = false;
    OpWatch::note_failure(error.what());
  }
}

void Call::finish(const torch::jit::Stack& stack, uint8_t facts, const void* fake_mode) noexcept {
  if (!is_valid_) return;
  try {
    const size_t count = schema_.returns().size();
    for (size_t i = stack.size() - count; i < stack.size(); ++i) add_value(words_, stack[i]);
    const uint16_t stream = moment::stream().value;
    const std::lock_guard lock(listeners().mutex);
    for (OpListener* listener : listeners().all) {
      if (listener->fake_mode() == fake_mode) listener->op_ran(words_, facts, stream);
    }
  } catch (const std::exception& error) {
    OpWatch::note_failure(error.what());
  }
}

}  // namespace tidegauge::op_stream
