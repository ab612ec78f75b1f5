// SPDX-License-Identifier: BSD-3-Clause
#include "track/op_log.h"

#include <algorithm>
#include <utility>

#include "capture/compat/fake_mode.h"
#include "capture/hooks/fake_hook.h"
#include "capture/hooks/op_switch.h"

namespace tidegauge {

OpLog::~OpLog() { stop(); }

void OpLog::start() {
  if (thread_ != nullptr) return;
  thread_ = op_hook::start_in_this_thread();
  fake_mode_ = fake_mode::active();
  if (fake_mode_ != nullptr) fake_hook::install();
  op_stream::add(this);
}

void OpLog::stop() {
  if (thread_ == nullptr) return;
  op_stream::remove(this);
  op_hook::stop_in(std::exchange(thread_, nullptr));
  op_hook::restore_in_this_thread();  // a tracker may still be started in this thread
}

int64_t OpLog::position() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

std::vector<OpEntry> OpLog::entries(int64_t begin, int64_t end) const {
  const std::lock_guard lock(mutex_);
  const auto size = static_cast<int64_t>(entries_.size());
  end = std::clamp<int64_t>(end, 0, size);
  begin = std::clamp<int64_t>(begin, 0, end);
  return {entries_.begin() + begin, entries_.begin() + end};
}

std::vector<OpCall> OpLog::calls(int64_t begin) const {
  const std::lock_guard lock(mutex_);
  begin = std::clamp<int64_t>(begin, 0, static_cast<int64_t>(calls_.size()));
  return {calls_.begin() + begin, calls_.end()};
}

std::unordered_map<uint32_t, std::string> OpLog::module_names() const {
  const std::lock_guard lock(mutex_);
  return module_names_;
}

size_t OpLog::hash(std::span<const int64_t> words) {
  uint64_t hash = words.size();
  for (const int64_t word : words) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void OpLog::op_ran(std::span<const int64_t> words, uint8_t facts, uint16_t stream) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = first_.emplace(hash(words), -1);
  int32_t number = place->second;
  while (number >= 0 && !std::ranges::equal(words_[number], words)) number = next_[number];
  if (number < 0) {
    number = static_cast<int32_t>(calls_.size());
    calls_.push_back(op_stream::read_call(words));
    words_.emplace_back(words.begin(), words.end());
    next_.push_back(std::exchange(place->second, number));
  }
  entries_.push_back({OpEntry::Kind::Op, facts, stream, static_cast<uint32_t>(number)});
}

void OpLog::event_recorded(uint32_t event, uint16_t stream) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({OpEntry::Kind::Record, 0, stream, event});
}

void OpLog::event_awaited(uint32_t event, uint16_t stream) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({OpEntry::Kind::Wait, 0, stream, event});
}

void OpLog::module_moved(ModuleId module, const std::string& name, bool enters) {
  const std::lock_guard lock(mutex_);
  module_names_[module.value] = name;
  entries_.push_back({enters ? OpEntry::Kind::Enter : OpEntry::Kind::Leave, 0, 0, module.value});
}

}  // namespace tidegauge
