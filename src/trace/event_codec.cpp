// SPDX-License-Identifier: BSD-3-Clause
#include "trace/event_codec.h"

#include <utility>

namespace tidegauge::trace {
namespace {

// In the file: append, never renumber. The common ones come first, so that they fit into one byte.
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

/// What the next event is expected to repeat.
struct Last {
  int64_t time_ns = 0;
  uint64_t storage = 0;
  uint32_t module = 0;
  ThreadId thread;
  Device device;
};

// Differences wrap, so that any two numbers have one.
uint64_t zigzag(uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
uint64_t unzigzag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

class Encoder {
 public:
  void put(const CodedEvent& traced) {
    const Event& e = traced.event;
    uint32_t fields = 0;
    const auto add = [&fields](bool is_told, Field field) {
      if (is_told) fields |= field;
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

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  CodedEvent get() {
    CodedEvent traced;
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
    return traced;
  }

  bool is_good() const { return is_good_; }
  bool is_at_end() const { return next_ == end_; }

 private:
  uint8_t byte() {
    if (next_ != end_) return *next_++;
    is_good_ = false;
    return 0;
  }
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t part = byte();
      value |= static_cast<uint64_t>(part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
    is_good_ = false;
    return 0;
  }
  uint64_t difference(uint64_t from) { return from + unzigzag(number()); }
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
  if (count > bytes.size() / 2) return false;  // kind and fields at least
  Decoder decoder(bytes);
  events.reserve(events.size() + count);
  for (uint64_t i = 0; i < count && decoder.is_good(); ++i) events.push_back(decoder.get());
  return decoder.is_good() && decoder.is_at_end();
}

int64_t checksum(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return static_cast<int64_t>(hash >> 1);
}

}  // namespace tidegauge::trace
