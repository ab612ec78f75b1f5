// SPDX-License-Identifier: BSD-3-Clause
#include "core/modules/call_log.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

void CallLog::open_block(int64_t task, uint64_t sequence, std::span<const ModuleId> base,
                         BlockKind kind) {
  if (blocks_.size() >= drop_at_) drop_expired();
  auto block = std::make_shared<CallBlock>();
  block->task_ = task;
  block->kind_ = kind;
  block->begin_ = sequence;
  if (!recent_.empty()) block->reserve_as(*recent_.back());
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

void CallLog::append_open(std::vector<ModuleId>& modules) const {
  for (const auto& block : open_) {
    for (const ModuleId module : block->chain(block->current_)) modules.push_back(module);
  }
}

CallRef CallLog::find(uint64_t sequence, SequenceRange* range) const {
  auto after =
      std::partition_point(blocks_.begin(), blocks_.end(),
                           [&](const RememberedBlock& each) { return each.begin <= sequence; });
  while (after != blocks_.begin()) {
    std::shared_ptr<CallBlock> block = (--after)->block.lock();
    if (!block) continue;
    while (block && sequence >= block->end_) block = block->enclosing_;
    if (!block) return {};
    SequenceRange found{sequence, sequence + 1};
    size_t hint = 0;
    const uint32_t call = block->call_of(sequence, found, hint);
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
  for (const RememberedBlock& each : blocks_) {
    if (const auto block = each.block.lock()) {
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

void CallLog::drop_expired() {
  std::erase_if(blocks_, [](const RememberedBlock& each) { return each.block.expired(); });
  drop_at_ = std::max(2 * kRecentBlocks, 2 * blocks_.size());
}

}  // namespace tidegauge
