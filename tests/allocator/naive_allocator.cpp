// SPDX-License-Identifier: BSD-3-Clause
#include "naive_allocator.h"

#include <algorithm>
#include <tuple>

namespace tidegauge {
namespace {

int64_t naive_round(int64_t requested_bytes) {
  int64_t rounded = 512;
  while (rounded < requested_bytes) rounded += 512;
  return rounded;
}

bool is_whole_and_free(const SegmentState& segment) {
  return segment.blocks.size() == 1 && segment.blocks[0].use == BlockUse::Free;
}

}  // namespace

bool NaiveAllocator::is_better(Candidate a, Candidate b) const {
  const auto key = [&](Candidate place) {
    const size_t age = tie_ == TieRule::SegmentCounter ? place.segment : 0;
    return std::tuple(at(place).size_bytes, age, at(place).address);
  };
  return key(a) < key(b);
}

bool NaiveAllocator::find(int64_t size_bytes, int64_t stream, Candidate* found) const {
  bool is_found = false;
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (segments_[s].stream != stream || segments_[s].is_small != (size_bytes <= kMiB)) continue;
    for (size_t b = 0; b < segments_[s].blocks.size(); ++b) {
      const Candidate place{s, b};
      if (at(place).use != BlockUse::Free || at(place).size_bytes < size_bytes) continue;
      if (!is_found || is_better(place, *found)) *found = place;
      is_found = true;
    }
  }
  if (!is_found) return false;
  const int64_t block_bytes = at(*found).size_bytes;
  if (size_bytes < config_.max_split_bytes) return block_bytes < config_.max_split_bytes;
  return block_bytes < size_bytes + config_.max_non_split_rounding_bytes;
}

bool NaiveAllocator::add_segment(int64_t size_bytes, int64_t stream, Candidate* found) {
  int64_t segment_bytes = 2 * kMiB;
  if (size_bytes > kMiB) segment_bytes = 20 * kMiB;
  if (size_bytes >= 10 * kMiB) {
    segment_bytes = 10 * kMiB;
    while (segment_bytes < size_bytes) segment_bytes += 2 * kMiB;
  }
  if (reserved_bytes() + segment_bytes > total_bytes_) return false;
  SegmentState segment{next_address_, segment_bytes, stream, {}, size_bytes <= kMiB, false, {}};
  segment.blocks.push_back({next_address_, segment_bytes, 0, BlockUse::Free});
  next_address_ += segment_bytes;
  segments_.push_back(segment);
  *found = {segments_.size() - 1, 0};
  return true;
}

bool NaiveAllocator::release_oversize(int64_t size_bytes, int64_t stream) {
  if (config_.max_split_bytes == kNoLimit) return false;
  const int64_t wanted_bytes = std::max(size_bytes, config_.max_split_bytes);
  int64_t released_bytes = 0;
  while (released_bytes < wanted_bytes) {
    // The best fit if one block suffices, else the largest.
    size_t best = segments_.size();
    bool is_enough = false;
    for (size_t s = 0; s < segments_.size(); ++s) {
      const SegmentState& segment = segments_[s];
      if (!is_whole_and_free(segment) || segment.stream != stream ||
          segment.is_small != (size_bytes <= kMiB) ||
          segment.size_bytes < config_.max_split_bytes) {
        continue;
      }
      const bool fits = released_bytes == 0 && segment.size_bytes >= wanted_bytes;
      bool is_better_one = best == segments_.size() || (fits && !is_enough);
      if (!is_better_one && fits == is_enough) {
        is_better_one = fits ? is_better({s, 0}, {best, 0}) : is_better({best, 0}, {s, 0});
      }
      if (is_better_one) {
        best = s;
        is_enough = fits;
      }
    }
    if (best == segments_.size()) return false;
    released_bytes += segments_[best].size_bytes;
    segments_.erase(segments_.begin() + static_cast<ptrdiff_t>(best));
    if (is_enough) return true;
  }
  return true;
}

int64_t NaiveAllocator::malloc(int64_t requested_bytes, int64_t stream) {
  const int64_t size_bytes = naive_round(requested_bytes);
  Candidate found{};
  bool is_found = find(size_bytes, stream, &found) || add_segment(size_bytes, stream, &found);
  if (!is_found && release_oversize(size_bytes, stream)) {
    is_found = add_segment(size_bytes, stream, &found);
  }
  if (!is_found) {
    empty_cache();
    is_found = add_segment(size_bytes, stream, &found);
  }
  if (!is_found) return kNoAddress;
  SegmentState& segment = segments_[found.segment];
  const BlockState whole = segment.blocks[found.block];
  const int64_t rest_bytes = whole.size_bytes - size_bytes;
  const bool splits = segment.is_small ? rest_bytes >= 512
                                       : size_bytes < config_.max_split_bytes && rest_bytes > kMiB;
  BlockState& block = segment.blocks[found.block];
  block.use = BlockUse::Allocated;
  block.requested_bytes = requested_bytes;
  if (splits) {
    block.size_bytes = size_bytes;
    segment.blocks.insert(segment.blocks.begin() + static_cast<ptrdiff_t>(found.block) + 1,
                          {whole.address + size_bytes, rest_bytes, 0, BlockUse::Free});
  }
  return whole.address;
}

void NaiveAllocator::free(int64_t address) {
  for (SegmentState& segment : segments_) {
    for (BlockState& block : segment.blocks) {
      if (block.address != address) continue;
      block.use = BlockUse::Free;
      block.requested_bytes = 0;
    }
    for (size_t b = 1; b < segment.blocks.size();) {
      if (segment.blocks[b - 1].use == BlockUse::Free && segment.blocks[b].use == BlockUse::Free) {
        segment.blocks[b - 1].size_bytes += segment.blocks[b].size_bytes;
        segment.blocks.erase(segment.blocks.begin() + static_cast<ptrdiff_t>(b));
      } else {
        ++b;
      }
    }
  }
}

void NaiveAllocator::empty_cache() { std::erase_if(segments_, is_whole_and_free); }

int64_t NaiveAllocator::reserved_bytes() const {
  int64_t sum = 0;
  for (const SegmentState& segment : segments_) sum += segment.size_bytes;
  return sum;
}

Layout NaiveAllocator::layout() const {
  Layout sorted = segments_;
  std::sort(sorted.begin(), sorted.end(),
            [](const SegmentState& a, const SegmentState& b) { return a.address < b.address; });
  return sorted;
}

}  // namespace tidegauge
