// SPDX-License-Identifier: BSD-3-Clause
#include <charconv>

#include "core/util/utf8.h"
#include "export/value_writer.h"

namespace tidegauge {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;

void append_number(std::string& text, int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  text.append(digits, end);
}

/// Escapes the characters that JSON requires to be escaped, and DEL.
void append_quoted(std::string& text, std::string_view value) {
  static constexpr char kHex[] = "0123456789abcdef";
  text += '"';
  for (const char letter : to_valid_utf8(value)) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      text += '\\';
      text += letter;
    } else if (code < 0x20 || code == 0x7F) {
      text += "\\u00";
      text += kHex[code >> 4];
      text += kHex[code & 15];
    } else {
      text += letter;
    }
  }
  text += '"';
}

}  // namespace

void ValueWriter::flush_if_full() {
  if (buffer_.size() < kBufferBytes) return;
  sink_(buffer_);
  buffer_.clear();
}

void ValueWriter::finish() {
  if (!buffer_.empty()) sink_(buffer_);
  buffer_.clear();
}

void JsonWriter::separate() {
  if (needs_comma_) buffer_ += ',';
  needs_comma_ = true;
}

void JsonWriter::begin(char bracket) {
  separate();
  buffer_ += bracket;
  needs_comma_ = false;
}

void JsonWriter::end(char bracket) {
  buffer_ += bracket;
  needs_comma_ = true;
  flush_if_full();
}

void JsonWriter::begin_map() { begin('{'); }
void JsonWriter::end_map() { end('}'); }
void JsonWriter::begin_list() { begin('['); }
void JsonWriter::end_list() { end(']'); }

void JsonWriter::key(std::string_view name) {
  text(name);
  buffer_ += ':';
  needs_comma_ = false;
}

void JsonWriter::text(std::string_view value) {
  separate();
  append_quoted(buffer_, value);
}

void JsonWriter::number(int64_t value) {
  separate();
  append_number(buffer_, value);
}

void JsonWriter::boolean(bool value) {
  separate();
  buffer_ += value ? "true" : "false";
}

void JsonWriter::pair(int64_t first, int64_t second) {
  begin_list();
  number(first);
  number(second);
  end_list();
}

void JsonWriter::shared(uint64_t /*id*/, const std::function<void()>& write) { write(); }

void JsonWriter::thousandths(int64_t value) {
  separate();
  if (value < 0) buffer_ += '-';
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  append_number(buffer_, static_cast<int64_t>(size / 1000));
  const std::string rest = std::to_string(size % 1000);
  buffer_ += '.' + std::string(3 - rest.size(), '0') + rest;
}

}  // namespace tidegauge
