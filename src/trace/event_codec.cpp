// SPDX-License-Identifier: BSD-3-Clause
#include "trace/event_codec.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tidegauge::trace {
namespace {

// These numbers are stored in files: append, never renumber. Common fields come first, to fit into
// one byte.
enum Field : uint32_t {
  kTime = 1 << 0,
  kStorage = 1 << 1,
  kSize = 1 << 2,
  kModule = 1 << 3,
  kOp = 1 << 4,
  kRole = 1 << 5,
  kTensor = 1 << 6,
  kPhase = 1 << 7,
  kSince = 1 << 8,
  kBirthFacts = 1 << 9,
  kThread = 1 << 10,
  kDevice = 1 << 11,
  kSizeOf = 1 << 12,
  kState = 1 << 13,
  kStream = 1 << 14,
  kStack = 1 << 15,
};
constexpr uint64_t kAllFields = (1 << 16) - 1;

/// Values of the last event. Those of the next event differ little from them.
struct Last {
  int64_t time_ns = 0;
  uint64_t storage = 0;
  uint32_t module = 0;
  ThreadId thread;
  Device device;
};

// Differences wrap around, so that every pair of numbers has one.
uint64_t zigzag(uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
uint64_t unzigzag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

class Encoder {
 public:
  void put(const CodedEvent& traced) {
    const Event& e = traced.event;
    uint32_t fields = 0;
    const auto add = [&fields](bool is_present, Field field) {
      if (is_present) fields |= field;
    };
    add(e.time_ns != last_.time_ns, kTime);
    add(static_cast<bool>(e.storage), kStorage);
    add(e.size_bytes != 0, kSize);
    add(static_cast<bool>(e.module), kModule);
    add(static_cast<bool>(e.op), kOp);
    add(e.role != Role{}, kRole);
    add(traced.tensor != 0, kTensor);
    add(e.phase != Phase{}, kPhase);
    add(e.since != Since{}, kSince);
    add(e.birth_facts != 0, kBirthFacts);
    add(e.thread != last_.thread, kThread);
    add(e.device != last_.device, kDevice);
    add(e.size_of != SizeOf{}, kSizeOf);
    add(e.state != ModuleState{}, kState);
    add(static_cast<bool>(e.stream), kStream);
    add(traced.stack != 0, kStack);

    byte(static_cast<uint8_t>(e.kind));
    number(fields);
    if (fields & kTime) {
      difference(static_cast<uint64_t>(e.time_ns), static_cast<uint64_t>(last_.time_ns));
    }
    if (fields & kStorage) difference(e.storage.value, last_.storage);
    if (fields & kSize) difference(static_cast<uint64_t>(e.size_bytes), 0);
    if (fields & kModule) difference(e.module.value, last_.module);
    if (fields & kOp) number(e.op.value);
    if (fields & kRole) byte(static_cast<uint8_t>(e.role));
    if (fields & kTensor) number(traced.tensor);
    if (fields & kPhase) byte(static_cast<uint8_t>(e.phase));
    if (fields & kSince) byte(static_cast<uint8_t>(e.since));
    if (fields & kBirthFacts) byte(e.birth_facts);
    if (fields & kThread) number(e.thread.value);
    if (fields & kDevice) {
      byte(static_cast<uint8_t>(e.device.type));
      byte(static_cast<uint8_t>(e.device.index));
    }
    if (fields & kSizeOf) byte(static_cast<uint8_t>(e.size_of));
    if (fields & kState) byte(static_cast<uint8_t>(e.state));
    if (fields & kStream) number(e.stream.value);
    if (fields & kStack) number(traced.stack);

    last_.time_ns = e.time_ns;
    if (e.storage) last_.storage = e.storage.value;
    if (e.module) last_.module = e.module.value;
    last_.thread = e.thread;
    last_.device = e.device;
  }

  std::vector<uint8_t> bytes;

 private:
  void byte(uint8_t value) { bytes.push_back(value); }
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<uint8_t>(value | 0x80));
    byte(static_cast<uint8_t>(value));
  }
  void difference(uint64_t value, uint64_t from) { number(zigzag(value - from)); }

  Last last_;
};

/// The size of the largest event: kind, fields, nine numbers, eight single bytes.
constexpr ptrdiff_t kMostEventBytes = 1 + 10 + 9 * 10 + 8;

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  /// `traced` must be blank.
  void get(CodedEvent& traced) {
    // Far from the end, single bytes need no check.
    if (end_ - next_ >= kMostEventBytes) {
      get_fields<false>(traced);
    } else {
      get_fields<true>(traced);
    }
  }

  bool is_good() const { return is_good_; }
  bool is_at_end() const { return next_ == end_; }

 private:
  template <bool kIsChecked>
  void get_fields(CodedEvent& traced) {
    const auto byte = [this] { return get_byte<kIsChecked>(); };
    const auto number = [this] { return get_number<kIsChecked>(); };
    const auto difference = [&](uint64_t from) { return from + unzigzag(number()); };
    Event& e = traced.event;
    e.kind = static_cast<EventKind>(byte());
    const uint64_t fields = number();
    if ((fields & ~kAllFields) != 0) is_good_ = false;
    if (fields & kTime) {
      last_.time_ns = static_cast<int64_t>(difference(static_cast<uint64_t>(last_.time_ns)));
    }
    e.time_ns = last_.time_ns;
    if (fields & kStorage) e.storage = StorageId(last_.storage = difference(last_.storage));
    if (fields & kSize) e.size_bytes = static_cast<int64_t>(difference(0));
    if (fields & kModule) {
      last_.module = narrow<uint32_t>(difference(last_.module));
      e.module = ModuleId(last_.module);
    }
    if (fields & kOp) e.op = OpId(narrow<uint32_t>(number()));
    if (fields & kRole) e.role = static_cast<Role>(byte());
    if (fields & kTensor) traced.tensor = narrow<uint32_t>(number());
    if (fields & kPhase) e.phase = static_cast<Phase>(byte());
    if (fields & kSince) e.since = static_cast<Since>(byte());
    if (fields & kBirthFacts) e.birth_facts = byte();
    if (fields & kThread) last_.thread = ThreadId(narrow<uint16_t>(number()));
    e.thread = last_.thread;
    if (fields & kDevice) {
      last_.device.type = static_cast<int8_t>(byte());
      last_.device.index = static_cast<int8_t>(byte());
    }
    e.device = last_.device;
    if (fields & kSizeOf) e.size_of = static_cast<SizeOf>(byte());
    if (fields & kState) e.state = static_cast<ModuleState>(byte());
    if (fields & kStream) e.stream = StreamId(narrow<uint16_t>(number()));
    if (fields & kStack) traced.stack = narrow<uint32_t>(number());
  }

  template <bool kIsChecked>
  uint8_t get_byte() {
    if (!kIsChecked || next_ != end_) return *next_++;
    is_good_ = false;
    return 0;
  }

  template <bool kIsChecked>
  uint64_t get_number() {
    if constexpr (!kIsChecked && std::endian::native == std::endian::little) {
      if (*next_ < 0x80) return *next_++;
      // Reads up to eight bytes at once: a loop over varying lengths would be mispredicted.
      uint64_t word = 0;
      std::memcpy(&word, next_, sizeof(word));
      const uint64_t ends = ~word & 0x8080808080808080;
      if (ends != 0) {
        const int length = (std::countr_zero(ends) >> 3) + 1;
        next_ += length;
        return join_groups(word & (~uint64_t{0} >> (64 - 8 * length)));
      }
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t part = get_byte<kIsChecked>();
      value |= static_cast<uint64_t>(part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
    is_good_ = false;
    return 0;
  }

  /// Joins the low seven bits of each byte.
  static uint64_t join_groups(uint64_t word) {
    word = ((word & 0x7f007f007f007f00) >> 1) | (word & 0x007f007f007f007f);
    word = ((word & 0x3fff00003fff0000) >> 2) | (word & 0x00003fff00003fff);
    return ((word & 0x0fffffff00000000) >> 4) | (word & 0x000000000fffffff);
  }

  template <typename Value>
  Value narrow(uint64_t value) {
    if (value != static_cast<Value>(value)) is_good_ = false;
    return static_cast<Value>(value);
  }

  const uint8_t* next_;
  const uint8_t* end_;
  bool is_good_ = true;
  Last last_;
};

}  // namespace

std::vector<uint8_t> encode_batch(std::span<const CodedEvent> events) {
  Encoder encoder;
  encoder.bytes.reserve(events.size() * 10);
  for (const CodedEvent& event : events) encoder.put(event);
  return std::move(encoder.bytes);
}

bool decode_batch(std::span<const uint8_t> bytes, uint64_t count, std::vector<CodedEvent>& events) {
  if (count > bytes.size() / 2) return false;  // an event has at least two bytes: kind and fields
  Decoder decoder(bytes);
  events.reserve(events.size() + count);
  for (uint64_t i = 0; i < count && decoder.is_good(); ++i) decoder.get(events.emplace_back());
  return decoder.is_good() && decoder.is_at_end();
}

int64_t checksum(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return static_cast<int64_t>(hash >> 1);
}

}  // namespace tidegauge::trace
