// SPDX-License-Identifier: BSD-3-Clause
#include "core/call_log.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

std::vector<ModuleId> CallBlock::chain(uint32_t call) const {
  std::vector<ModuleId> modules;
  for (; call != kNoCall; call = calls_[call].parent) modules.push_back(calls_[call].module);
  std::reverse(modules.begin(), modules.end());
  return modules;
}

uint32_t CallBlock::call_of(uint64_t sequence, SequenceRange& range) const {
  const auto after =
      std::upper_bound(switches_.begin(), switches_.end(), sequence,
                       [](uint64_t value, const Switch& point) { return value < point.sequence; });
  if (after == switches_.begin()) return kNoCall;
  // Of a block that is open, or has another inside, the numbers around may come to mean others.
  if (is_only_home_of(sequence)) {
    range = {std::prev(after)->sequence, after == switches_.end() ? end_ : after->sequence};
    clip_by_stops(sequence, range);
  }
  return std::prev(after)->call;
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

void CallBlock::switch_to(uint64_t sequence, uint32_t call) {
  current_ = call;
  // No node was made since the last switch point: nobody can ask for it.
  if (!switches_.empty() && switches_.back().sequence == sequence) switches_.pop_back();
  switches_.push_back({sequence, call});
}

void append_move(const CallBlock* from_block, uint32_t from, const CallBlock* to_block, uint32_t to,
                 std::vector<ModuleMove>& moves) {
  uint32_t last_left = from_block != nullptr ? from_block->base_ : 0;
  uint32_t first_entered = to_block != nullptr ? to_block->base_ : 0;
  if (from_block == to_block && from_block != nullptr) {
    // A call has a higher index than those around it, so the path whose end has the higher index is
    // the one to shorten until both meet.
    const uint32_t base = from_block->base_;
    uint32_t a = from;
    uint32_t b = to;
    while (a != b) {
      uint32_t& inner = b == base || (a != base && a > b) ? a : b;
      inner = from_block->calls_[inner].parent;
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

void CallLog::open_block(int64_t task, uint64_t sequence, std::span<const ModuleId> base,
                         BlockKind kind) {
  if (blocks_.size() >= drop_at_) drop_expired();
  auto block = std::make_shared<CallBlock>();
  block->task_ = task;
  block->kind_ = kind;
  block->begin_ = sequence;
  if (!open_.empty()) {
    open_.back()->has_inner_ = true;
    block->enclosing_ = open_.back();
  }
  for (const ModuleId module : base) {
    block->calls_.push_back({module, block->base_, sequence});
    block->base_ = static_cast<uint32_t>(block->calls_.size() - 1);
  }
  block->switch_to(sequence, block->base_);
  blocks_.push_back({sequence, block});
  recent_.push_back(block);
  if (recent_.size() > kRecentBlocks) recent_.pop_front();
  open_.push_back(std::move(block));
}

BlockKind CallLog::close_region(uint64_t sequence) {
  const auto is_region = [](const auto& block) { return block->kind_ != BlockKind::kCall; };
  if (std::none_of(open_.begin(), open_.end(), is_region)) return BlockKind::kCall;
  while (!is_region(open_.back())) close_back(sequence);
  const BlockKind kind = open_.back()->kind_;
  close_back(sequence);
  return kind;
}

CallLog::OpenCall CallLog::enter(ModuleId module, uint64_t sequence) {
  CallBlock& block = *open_.back();
  const bool is_outermost = block.current_ == block.base_;
  block.calls_.push_back({module, block.current_, sequence});
  block.switch_to(sequence, static_cast<uint32_t>(block.calls_.size() - 1));
  return {open_.size() - 1, block.current_, is_outermost};
}

void CallLog::leave(const OpenCall& open, uint64_t sequence) {
  while (open_.size() > open.block + 1) close_back(sequence);
  CallBlock& block = *open_.back();
  block.switch_to(sequence, block.calls_[open.call].parent);
  if (block.current_ == block.base_ && block.kind_ == BlockKind::kCall) close_back(sequence);
}

void CallLog::add_stop(const OpenCall& open, uint64_t sequence) {
  CallBlock& block = *open_[open.block];
  if (sequence < block.begin_ || sequence >= block.calls_[open.call].begin) return;
  const CallBlock::Stop stop{sequence, open.call};
  const auto after =
      std::upper_bound(block.stops_.begin(), block.stops_.end(), stop,
                       [](const CallBlock::Stop& a, const CallBlock::Stop& b) {
                         return std::pair(a.sequence, a.call) < std::pair(b.sequence, b.call);
                       });
  block.stops_.insert(after, stop);
}

void CallLog::leave_all(uint64_t sequence) {
  while (!open_.empty()) {
    close_back(std::max(sequence, open_.back()->switches_.back().sequence));
  }
}

std::optional<CallLog::OpenCall> CallLog::find_open(ModuleId module) const {
  for (size_t i = open_.size(); i-- > 0;) {
    const CallBlock& block = *open_[i];
    for (uint32_t call = block.current_; call != block.base_; call = block.calls_[call].parent) {
      const CallBlock::Call& candidate = block.calls_[call];
      if (candidate.module == module) return OpenCall{i, call, candidate.parent == block.base_};
    }
  }
  return std::nullopt;
}

void CallLog::append_open(std::vector<ModuleId>& modules) const {
  for (const auto& block : open_) {
    for (const ModuleId module : block->chain(block->current_)) modules.push_back(module);
  }
}

CallRef CallLog::find(uint64_t sequence, SequenceRange* range) const {
  auto after = std::partition_point(blocks_.begin(), blocks_.end(),
                                    [&](const Known& k) { return k.begin <= sequence; });
  while (after != blocks_.begin()) {
    std::shared_ptr<CallBlock> block = (--after)->block.lock();
    if (!block) continue;
    while (block && sequence >= block->end_) block = block->enclosing_;
    if (!block) return {};
    SequenceRange found{sequence, sequence + 1};
    const uint32_t call = block->call_of(sequence, found);
    if (range != nullptr) *range = found;
    return call == CallBlock::kNoCall ? CallRef{} : CallRef{block, call};
  }
  return {};
}

CallRef CallLog::find_latest(ModuleId module) const {
  CallRef thrown_away;
  for (auto block = recent_.rbegin(); block != recent_.rend(); ++block) {
    const bool is_thrown_away = (*block)->kind_ == BlockKind::kRegion;
    if (is_thrown_away && thrown_away) continue;
    const auto& calls = (*block)->calls_;
    for (size_t i = calls.size(); i-- > 0;) {
      if (calls[i].module != module) continue;
      CallRef ref{*block, static_cast<uint32_t>(i)};
      if (!is_thrown_away) return ref;
      thrown_away = std::move(ref);
      break;
    }
  }
  return thrown_away;
}

void CallLog::visit_modules(const std::function<void(ModuleId)>& visit) const {
  for (const Known& known : blocks_) {
    if (const auto block = known.block.lock()) {
      for (const auto& call : block->calls_) visit(call.module);
    }
  }
}

bool CallLog::keep_held_only() {
  open_.clear();
  recent_.clear();
  drop_expired();
  return !blocks_.empty();
}

void CallLog::close_back(uint64_t sequence) {
  open_.back()->end_ = sequence;
  open_.pop_back();
}

void CallLog::drop_expired() {
  std::erase_if(blocks_, [](const Known& known) { return known.block.expired(); });
  drop_at_ = std::max(2 * kRecentBlocks, 2 * blocks_.size());
}

}  // namespace tidegauge
