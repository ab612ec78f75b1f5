// SPDX-License-Identifier: BSD-3-Clause
#include "core/modules/call_block.h"

#include <algorithm>

namespace tidegauge {

std::vector<ModuleId> CallBlock::chain(uint32_t call) const {
  std::vector<ModuleId> modules;
  for (; call != kNoCall; call = calls_[call].parent) modules.push_back(calls_[call].module);
  std::reverse(modules.begin(), modules.end());
  return modules;
}

size_t CallBlock::find_switch(uint64_t sequence, size_t hint) const {
  for (size_t tries = 0; tries < 3 && hint < switches_.size(); ++tries, --hint) {
    if (is_switch_of(hint, sequence)) return hint;
  }
  const auto after =
      std::upper_bound(switches_.begin(), switches_.end(), sequence,
                       [](uint64_t value, const Switch& point) { return value < point.sequence; });
  return after == switches_.begin() ? switches_.size()
                                    : static_cast<size_t>(after - switches_.begin()) - 1;
}

uint32_t CallBlock::call_of(uint64_t sequence, SequenceRange& range, size_t& hint) const {
  hint = find_switch(sequence, hint);
  if (hint == switches_.size()) return kNoCall;
  // In an open block, or a block with inner blocks, the answer for nearby numbers may change later.
  if (is_only_home_of(sequence)) {
    const bool is_last = hint + 1 == switches_.size();
    range = {switches_[hint].sequence, is_last ? end_ : switches_[hint + 1].sequence};
    if (!stops_.empty()) clip_by_stops(sequence, range);
  }
  return switches_[hint].call;
}

void CallBlock::clip_by_stops(uint64_t sequence, SequenceRange& range) const {
  const auto at =
      std::lower_bound(stops_.begin(), stops_.end(), sequence,
                       [](const Stop& stop, uint64_t value) { return stop.sequence < value; });
  if (at != stops_.begin()) range.begin = std::max(range.begin, std::prev(at)->sequence + 1);
  if (at == stops_.end()) return;
  if (at->sequence == sequence) {
    range = {sequence, sequence + 1};
  } else {
    range.end = std::min(range.end, at->sequence);
  }
}

void append_move(const CallBlock* from_block, uint32_t from, const CallBlock* to_block, uint32_t to,
                 std::vector<ModuleMove>& moves) {
  uint32_t last_left = from_block != nullptr ? from_block->base_ : 0;
  uint32_t first_entered = to_block != nullptr ? to_block->base_ : 0;
  if (from_block == to_block && from_block != nullptr) {
    if (from == to) return;
    const std::vector<CallBlock::Call>& calls = from_block->calls_;
    const uint32_t base = from_block->base_;
    if (from != base && to != base && calls[from].parent == calls[to].parent) {
      // The most common move: from one layer to its neighbour.
      moves.push_back({calls[from].module, false});
      moves.push_back({calls[to].module, true});
      return;
    }
    // An inner call has a higher index than its outer calls. So go outwards from the call with the
    // higher index until both meet.
    uint32_t a = from;
    uint32_t b = to;
    while (a != b) {
      uint32_t& inner = b == base || (a != base && a > b) ? a : b;
      inner = calls[inner].parent;
    }
    last_left = first_entered = a;
  }
  if (from_block != nullptr) {
    for (; from != last_left; from = from_block->calls_[from].parent) {
      moves.push_back({from_block->calls_[from].module, false});
    }
  }
  const size_t left = moves.size();
  if (to_block != nullptr) {
    for (; to != first_entered; to = to_block->calls_[to].parent) {
      moves.push_back({to_block->calls_[to].module, true});
    }
  }
  std::reverse(moves.begin() + static_cast<std::ptrdiff_t>(left), moves.end());
}

}  // namespace tidegauge
