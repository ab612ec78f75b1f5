// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tidegauge {

/// Receives the bytes of a file, piece by piece; may throw.
using Sink = std::function<void(std::string_view)>;

/// Writes plain values one by one, so that a file of any size needs only a small buffer. Begin and
/// end maps and lists explicitly; in a map, write a key before each value.
///
/// Replaces each byte of a text that is not valid UTF-8 by U+FFFD. Propagates exceptions from the
/// sink.
class ValueWriter {
 public:
  explicit ValueWriter(Sink sink) : sink_(std::move(sink)) {}
  virtual ~ValueWriter() = default;
  ValueWriter(const ValueWriter&) = delete;
  ValueWriter& operator=(const ValueWriter&) = delete;

  virtual void begin_map() = 0;
  virtual void end_map() = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void number(int64_t value) = 0;
  virtual void boolean(bool value) = 0;
  /// A tuple if the format has tuples, else a list.
  virtual void pair(int64_t first, int64_t second) = 0;
  /// A repeated value: `write` must write the same value for the same `id`.
  virtual void shared(uint64_t id, const std::function<void()>& write) = 0;
  /// Call once, after the top-level value.
  virtual void finish();

 protected:
  /// Passes the buffer to the sink once it is large.
  void flush_if_full();
  std::string buffer_;

 private:
  Sink sink_;
};

class JsonWriter final : public ValueWriter {
 public:
  using ValueWriter::ValueWriter;

  void begin_map() override;
  void end_map() override;
  void begin_list() override;
  void end_list() override;
  void key(std::string_view name) override;
  void text(std::string_view value) override;
  void number(int64_t value) override;
  void boolean(bool value) override;
  void pair(int64_t first, int64_t second) override;
  void shared(uint64_t id, const std::function<void()>& write) override;
  /// `value` / 1000, with three decimals.
  void thousandths(int64_t value);

 private:
  void separate();
  void begin(char bracket);
  void end(char bracket);

  bool needs_comma_ = false;
};

/// Pickle protocol 4, limited to the opcodes that torch's viewer supports. Writes each text and
/// each shared value once.
class PickleWriter final : public ValueWriter {
 public:
  explicit PickleWriter(Sink sink);

  void begin_map() override;
  void end_map() override;
  void begin_list() override;
  void end_list() override;
  void key(std::string_view name) override;
  void text(std::string_view value) override;
  void number(int64_t value) override;
  void boolean(bool value) override;
  void pair(int64_t first, int64_t second) override;
  void shared(uint64_t id, const std::function<void()>& write) override;
  void finish() override;

 private:
  struct Open {
    bool is_list;
    size_t count = 0;
  };

  void put(char opcode) { buffer_ += opcode; }
  void put_bytes(uint64_t value, int count);
  void recall(uint32_t place);
  uint32_t memoize();
  void plain_number(int64_t value);
  void value_written();

  std::vector<Open> open_;
  std::unordered_map<std::string, uint32_t> texts_;
  std::unordered_map<uint64_t, uint32_t> shared_;
  uint32_t memo_size_ = 0;
};

}  // namespace tidegauge
