// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/block.h"

namespace tidegauge {

Block* BlockArena::make() {
  if (spare_ != nullptr) {
    Block* block = spare_;
    spare_ = block->next;
    *block = Block{};
    return block;
  }
  if (used_in_last_ == kChunk) {
    chunks_.push_back(std::make_unique<Block[]>(kChunk));
    used_in_last_ = 0;
  }
  return &chunks_.back()[used_in_last_++];
}

void BlockArena::recycle(Block* block) {
  block->next = spare_;
  spare_ = block;
}

}  // namespace tidegauge
