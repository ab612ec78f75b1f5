// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/plain_pickle.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>

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
  // Marks, constants, containers, MEMOIZE, and reading the memo at a position that is checked
  // later.
  set("(012N})]dltaesu\x85\x86\x87\x88\x89\x8f\x90\x91\x94", Argument::None);
  set("\x80Kh", Argument::Bytes1);
  set("M", Argument::Bytes2);
  set("Jj", Argument::Bytes4);
  set("G\x95", Argument::Bytes8);
  set("ILFSVg", Argument::Line);
  set("UC\x8a\x8c", Argument::Length1);
  set("TXB\x8b", Argument::Length4);
  set("\x8d\x8e\x96", Argument::Length8);
  set("q", Argument::Memo1);
  set("r", Argument::Memo4);
  set("p", Argument::MemoLine);
  set(".", Argument::Stop);
  set("cioRbPQ\x81\x82\x83\x84\x92\x93\x97\x98", Argument::Object);
  return arguments;
}
constexpr std::array<Argument, 256> kArguments = make_arguments();

class Walk {
 public:
  explicit Walk(std::string_view data) : data_(data) {}

  std::optional<std::string> find_fault() {
    while (position_ < data_.size()) {
      const size_t start = position_;
      const auto opcode = static_cast<unsigned char>(data_[position_++]);
      const Argument argument = kArguments[opcode];
      if (argument == Argument::Stop) return std::nullopt;
      if (argument == Argument::Object) {
        return "refused: at byte " + std::to_string(start) +
               " the pickle names, makes or calls an object, which no memory snapshot does; "
               "do not open it with pickle";
      }
      if (argument == Argument::Unknown) {
        return "not a memory snapshot: byte " + std::to_string(start) + " is not a pickle opcode";
      }
      if (!step_over(argument)) {
        return "damaged at byte " + std::to_string(start) + ": invalid length or number";
      }
    }
    return "truncated: the end of the pickle is missing";
  }

 private:
  bool step_over(Argument argument) {
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
        return skip(1);
      case Argument::Memo4:
        return is_memo_place(read_number(4));
      case Argument::MemoLine:
        return is_memo_place(parse(read_line()));
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
    return count && *count <= data_.size() - position_ && skip(*count);
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

  bool is_memo_place(std::optional<uint64_t> place) const { return place && *place <= position_; }

  std::string_view data_;
  size_t position_ = 0;
};

}  // namespace

std::optional<std::string> find_pickle_fault(std::string_view data) {
  return Walk(data).find_fault();
}

}  // namespace tidegauge
