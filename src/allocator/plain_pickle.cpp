// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/plain_pickle.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidegauge {
namespace {

/// The argument that follows an opcode.
enum class Argument : uint8_t {
  Unknown,
  Object,  // names, makes or calls something
  None,
  Bytes1,
  Bytes2,
  Bytes4,
  Bytes8,
  Line,     // text up to the end of the line
  Length1,  // a length of 1, 4 or 8 bytes, then that many bytes
  Length4,
  Length8,
  Memo1,  // a memo position, as 1 byte, 4 bytes or text
  Memo4,
  MemoLine,
  Stop,
};

constexpr std::array<Argument, 256> make_arguments() {
  std::array<Argument, 256> arguments{};
  const auto set = [&](std::string_view opcodes, Argument argument) {
    for (const char opcode : opcodes) arguments[static_cast<unsigned char>(opcode)] = argument;
  };
  // Marks, constants, containers and MEMOIZE.
  set("(012N})]dltaesu\x85\x86\x87\x88\x89\x94", Argument::None);
  set("\x80K", Argument::Bytes1);
  set("M", Argument::Bytes2);
  set("J", Argument::Bytes4);
  set("G\x95", Argument::Bytes8);
  set("ILFSV", Argument::Line);
  set("UC\x8a\x8c", Argument::Length1);
  set("TXB\x8b", Argument::Length4);
  set("\x8d\x8e\x96", Argument::Length8);
  set("hq", Argument::Memo1);
  set("jr", Argument::Memo4);
  set("gp", Argument::MemoLine);
  set(".", Argument::Stop);
  // Sets are hashed like keys, and no snapshot has one.
  set("\x8f\x90\x91", Argument::Object);
  set("cioRbPQ\x81\x82\x83\x84\x92\x93\x97\x98", Argument::Object);
  return arguments;
}
constexpr std::array<Argument, 256> kArguments = make_arguments();

/// What is known about a value.
enum class Value : uint8_t {
  Other,
  Key,  // a text, or a number of 32 bits; the next four are texts
  CollectionsText,
  DefaultDictText,
  BuiltinsText,
  IntText,
  DefaultDictClass,
  IntClass,
  NoArguments,  // ()
  IntArgument,  // (int,)
};

constexpr bool is_key(Value value) { return value >= Value::Key && value <= Value::IntText; }

constexpr Value read_text(std::string_view text) {
  return text == "collections"   ? Value::CollectionsText
         : text == "defaultdict" ? Value::DefaultDictText
         : text == "builtins"    ? Value::BuiltinsText
         : text == "int"         ? Value::IntText
                                 : Value::Key;
}

/// The stack of the machine that a pickle is a program for.
class Stack {
 public:
  explicit Stack(PickledObjects objects) : objects_(objects) {}

  /// Applies an opcode that is not followed by a memo position. `text`: its argument, if that has a
  /// length. Returns what is wrong with the opcode, or an empty text.
  std::string_view apply(unsigned char opcode, std::string_view text) {
    switch (opcode) {
      case '(':
        marks_.push_back(values_.size());
        return {};
      case '0':
        return pop(1);
      case '1':
        return pop_to_mark();
      case '2':
        return values_.empty() ? kNoValue : push(values_.back());
      case ')':
        return push(Value::NoArguments);
      case 'd':
        return replace(pop_items());
      case 'l':
      case 't':
        return replace(pop_to_mark());
      case 'a':
        return pop(1);
      case 'e':
        return pop_to_mark();
      case 's':
        return values_.size() < 2 ? kNoValue : has_keys(values_.size() - 2) ? pop(2) : kKey;
      case 'u':
        return pop_items();
      case 0x85:
        if (!values_.empty() && values_.back() == Value::IntClass) {
          return replace_top(1, Value::IntArgument);
        }
        [[fallthrough]];
      case 0x86:
      case 0x87:
        return replace(pop(opcode - 0x85 + 1));
      case 0x94:
        return put(memo_.size());
      case 0x80:  // the protocol
      case 0x95:  // a frame
        return {};
      case 'K':
      case 'M':
      case 'J':
      case 'S':
      case 'T':
      case 'U':
      case 'V':
      case 'X':
      case 0x8c:
      case 0x8d:
        return push(read_text(text));
      case 0x93:
        return name_class();
      case 'R':
        return make_object();
      default:
        return push(Value::Other);
    }
  }

  /// True if the opcode names or makes an object that is allowed here.
  bool allows(unsigned char opcode) const {
    return objects_ == PickledObjects::DefaultDicts && (opcode == 0x93 || opcode == 'R');
  }

  std::string_view get(uint64_t place) {
    return place < memo_.size() ? push(memo_[place]) : std::string_view("reads an unset memo");
  }

  std::string_view put(uint64_t place) {
    if (values_.empty()) return kNoValue;
    if (place >= memo_.size()) memo_.resize(place + 1, Value::Other);
    memo_[place] = values_.back();
    return {};
  }

 private:
  static constexpr std::string_view kNoValue = "needs a value that is not there";
  static constexpr std::string_view kKey = "uses a key that is neither a text nor a small number";
  static constexpr std::string_view kObject = "makes an object other than a dictionary";

  std::string_view push(Value value) {
    values_.push_back(value);
    return {};
  }

  std::string_view name_class() {
    if (ends_with(Value::CollectionsText, Value::DefaultDictText)) {
      return replace_top(2, Value::DefaultDictClass);
    }
    if (ends_with(Value::BuiltinsText, Value::IntText)) return replace_top(2, Value::IntClass);
    return kObject;
  }

  /// Only an empty one: arguments could have keys.
  std::string_view make_object() {
    const bool is_empty = ends_with(Value::DefaultDictClass, Value::NoArguments) ||
                          ends_with(Value::DefaultDictClass, Value::IntArgument);
    return is_empty ? replace_top(2, Value::Other) : kObject;
  }

  bool ends_with(Value first, Value second) const {
    const size_t size = values_.size();
    return size >= 2 && values_[size - 2] == first && values_[size - 1] == second;
  }

  std::string_view replace_top(size_t count, Value by) {
    const std::string_view fault = pop(count);
    return fault.empty() ? push(by) : fault;
  }

  /// A mark stays below the values that follow it.
  std::string_view pop(size_t count) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (values_.size() - floor < count) return kNoValue;
    values_.resize(values_.size() - count);
    return {};
  }

  std::string_view pop_to_mark() {
    if (marks_.empty()) return kNoValue;
    values_.resize(marks_.back());
    marks_.pop_back();
    return {};
  }

  /// Pops keys and values up to the mark.
  std::string_view pop_items() {
    if (marks_.empty()) return kNoValue;
    return has_keys(marks_.back()) ? pop_to_mark() : kKey;
  }

  std::string_view replace(std::string_view fault) {
    return fault.empty() ? push(Value::Other) : fault;
  }

  /// For keys and values from `first` on. The hash of a tuple is the work of hashing all that is in
  /// it, and references make that any number of values.
  bool has_keys(size_t first) const {
    for (size_t i = first; i < values_.size(); i += 2) {
      if (!is_key(values_[i])) return false;
    }
    return true;
  }

  PickledObjects objects_;
  std::vector<Value> values_;
  std::vector<size_t> marks_;  // the number of values below each
  std::vector<Value> memo_;
};

class Walk {
 public:
  Walk(std::string_view data, PickledObjects objects) : data_(data), stack_(objects) {}

  std::optional<std::string> find_fault() {
    while (position_ < data_.size()) {
      const size_t start = position_;
      const auto opcode = static_cast<unsigned char>(data_[position_++]);
      const Argument argument = kArguments[opcode];
      if (argument == Argument::Stop) return std::nullopt;
      if (argument == Argument::Object && !stack_.allows(opcode)) {
        return "refused: at byte " + std::to_string(start) +
               " the pickle names, makes or calls an object; do not open it with pickle";
      }
      if (argument == Argument::Unknown) {
        return "damaged, or another format: byte " + std::to_string(start) +
               " is not a pickle opcode";
      }
      if (!step_over(argument)) {
        return "damaged at byte " + std::to_string(start) + ": invalid length or number";
      }
      if (const std::string_view fault = apply(opcode); !fault.empty()) {
        return "damaged, or another format: the pickle " + std::string(fault) + " at byte " +
               std::to_string(start);
      }
    }
    return "truncated: the end of the pickle is missing";
  }

 private:
  std::string_view apply(unsigned char opcode) {
    switch (opcode) {
      case 'h':
      case 'j':
      case 'g':
        return stack_.get(memo_place_);
      case 'q':
      case 'r':
      case 'p':
        return stack_.put(memo_place_);
      default:
        return stack_.apply(opcode, text_);
    }
  }

  bool step_over(Argument argument) {
    text_ = {};
    switch (argument) {
      case Argument::Bytes1:
        return skip(1);
      case Argument::Bytes2:
        return skip(2);
      case Argument::Bytes4:
        return skip(4);
      case Argument::Bytes8:
        return skip(8);
      case Argument::Line:
        return read_line().has_value();
      case Argument::Length1:
        return skip_counted(1);
      case Argument::Length4:
        return skip_counted(4);
      case Argument::Length8:
        return skip_counted(8);
      case Argument::Memo1:
        return set_memo_place(read_number(1));
      case Argument::Memo4:
        return set_memo_place(read_number(4));
      case Argument::MemoLine:
        return set_memo_place(parse(read_line()));
      default:
        return true;
    }
  }

  bool skip(size_t count) {
    if (count > data_.size() - position_) return false;
    position_ += count;
    return true;
  }

  std::optional<uint64_t> read_number(size_t width) {
    if (width > data_.size() - position_) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(data_[position_ + i]);
    }
    position_ += width;
    return value;
  }

  bool skip_counted(size_t width) {
    const std::optional<uint64_t> count = read_number(width);
    if (!count || *count > data_.size() - position_) return false;
    text_ = data_.substr(position_, *count);
    return skip(*count);
  }

  std::optional<std::string_view> read_line() {
    const size_t end = data_.find('\n', position_);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = data_.substr(position_, end - position_);
    position_ = end + 1;
    return line;
  }

  static std::optional<uint64_t> parse(std::optional<std::string_view> line) {
    uint64_t value = 0;
    if (!line) return std::nullopt;
    const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
    if (error != std::errc{} || end != line->data() + line->size()) return std::nullopt;
    return value;
  }

  /// A place beyond the opcodes so far was never set, and one to set must not be far ahead: memory
  /// is allocated up to it.
  bool set_memo_place(std::optional<uint64_t> place) {
    memo_place_ = place.value_or(0);
    return place && (*place <= position_ || *place <= 0xff);
  }

  std::string_view data_;
  size_t position_ = 0;
  std::string_view text_;  // the argument of this opcode, if it has a length
  uint64_t memo_place_ = 0;
  Stack stack_;
};

}  // namespace

std::optional<std::string> find_pickle_fault(std::string_view data, PickledObjects objects) {
  return Walk(data, objects).find_fault();
}

}  // namespace tidegauge
