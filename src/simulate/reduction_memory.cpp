// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/reduction_memory.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "simulate/ceil_div.h"
#include "simulate/claimed_device.h"

namespace tidegauge::simulation {
namespace {

constexpr int64_t kMostThreads = 512;
constexpr int64_t kWarp = 32;

int64_t largest_power_of_2(int64_t number) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(number, 1))));
}

/// One dimension of the loops, with strides in bytes.
struct Dimension {
  int64_t size;
  int64_t output_stride;  // 0: reduced
  int64_t input_stride;
};
/// The fastest dimension first.
using Dimensions = c10::SmallVector<Dimension, 6>;

/// 1: `a` belongs after `b`; -1: before it; 0: either.
int compare(const Dimension& a, const Dimension& b) {
  if ((a.output_stride == 0) != (b.output_stride == 0)) return b.output_stride == 0 ? 1 : -1;
  for (const auto stride : {&Dimension::output_stride, &Dimension::input_stride}) {
    if (a.*stride == 0 || b.*stride == 0) continue;
    if (a.*stride != b.*stride) return a.*stride < b.*stride ? -1 : 1;
    if (a.size > b.size) return 1;
  }
  return 0;
}

void sort(Dimensions& dimensions) {
  for (size_t i = 1; i < dimensions.size(); ++i) {
    size_t at = i;
    for (size_t other = i; other-- > 0;) {
      const int order = compare(dimensions[other], dimensions[at]);
      if (order < 0) break;
      if (order == 0) continue;
      std::swap(dimensions[other], dimensions[at]);
      at = other;
    }
  }
}

bool is_one_loop(const Dimension& inner, const Dimension& outer) {
  return inner.size == 1 || outer.size == 1 ||
         (inner.size * inner.output_stride == outer.output_stride &&
          inner.size * inner.input_stride == outer.input_stride);
}

Dimensions merge(const Dimensions& dimensions) {
  Dimensions merged;
  for (const Dimension& next : dimensions) {
    if (merged.empty() || !is_one_loop(merged.back(), next)) {
      merged.push_back(next);
      continue;
    }
    const int64_t size = merged.back().size * next.size;
    if (merged.back().size == 1) merged.back() = next;
    merged.back().size = size;
  }
  return merged;
}

Dimensions read(const at::Tensor& input, const at::Tensor& output, uint64_t reduced) {
  Dimensions dimensions;
  const bool keeps_dimensions = output.dim() == input.dim();
  int64_t output_dimension = output.dim();
  for (int64_t i = input.dim(); i-- > 0;) {
    const bool is_reduced = ((reduced >> i) & 1) != 0;
    if (!is_reduced || keeps_dimensions) --output_dimension;
    dimensions.push_back(
        {input.size(i),
         is_reduced || output.dim() == 0
             ? 0
             : output.stride(output_dimension) * static_cast<int64_t>(output.itemsize()),
         input.stride(i) * static_cast<int64_t>(input.itemsize())});
  }
  sort(dimensions);
  return merge(dimensions);
}

bool fits_32_bits(const Dimensions& dimensions) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t elements = 1, output_bytes = 1, input_bytes = 1;
  for (const Dimension& each : dimensions) {
    elements *= each.size;
    output_bytes += (each.size - 1) * each.output_stride;
    input_bytes += (each.size - 1) * each.input_stride;
  }
  return elements <= kMost && output_bytes <= kMost && input_bytes <= kMost;
}

/// The dimension that spans the most memory.
size_t find_widest(const Dimensions& dimensions) {
  size_t widest = 0;
  int64_t most = -1;
  for (size_t i = dimensions.size(); i-- > 0;) {
    const Dimension& each = dimensions[i];
    const int64_t extent = (each.size - 1) * std::max(each.output_stride, each.input_stride);
    if (extent > most) {
      most = extent;
      widest = i;
    }
  }
  return widest;
}

/// The launch of one reduction kernel.
class Launch {
 public:
  Launch(const Dimensions& dimensions, int64_t item_bytes, Reduction kind)
      : dimensions_(dimensions), kind_(kind) {
    for (const Dimension& each : dimensions) {
      (each.output_stride == 0 ? inputs_ : outputs_) *= each.size;
      reduced_count_ += each.output_stride == 0 ? 1 : 0;
    }
    choose_block(item_bytes);
    split();
  }

  /// Bytes of the partial results; 0 if no result is split over blocks.
  int64_t partial_bytes() const {
    if (blocks_per_output_ == 1) return 0;
    const int64_t lanes = is_reduced_by_lanes_ ? 1 : width_ * output_vector_;
    return kind_.value_bytes * outputs_ * blocks_per_output_ * lanes;
  }
  int64_t counter_bytes() const { return static_cast<int64_t>(sizeof(int32_t)) * grid(); }

 private:
  void choose_block(int64_t item_bytes) {
    is_reduced_by_lanes_ = reduced_count_ == dimensions_.size() ||
                           dimensions_[0].input_stride < dimensions_[reduced_count_].input_stride;
    int64_t along = 1, across = 1;
    if (!dimensions_.empty()) {
      along = is_reduced_by_lanes_ ? inputs_ : outputs_;
      across = is_reduced_by_lanes_ ? outputs_ : inputs_;
      const size_t fastest = is_reduced_by_lanes_ ? 0 : reduced_count_;
      if (dimensions_[fastest].input_stride == item_bytes) {
        if (!is_reduced_by_lanes_) {
          output_vector_ = find_output_vector(item_bytes);
          along /= output_vector_;
        } else if (along >= 128 && reduced_count_ == 1) {
          along /= kind_.vector_elements;
        }
      }
    }
    const int64_t most = kMostThreads / output_vector_;
    const int64_t wide = along < most ? largest_power_of_2(along) : most;
    const int64_t high = across < most ? largest_power_of_2(across) : most;
    width_ = std::min(wide, kWarp);
    height_ = std::min(high, most / width_);
    width_ = std::min(wide, most / height_);
  }

  int64_t find_output_vector(int64_t item_bytes) const {
    int64_t vector = 4;
    const auto restrict_to = [&](int64_t number) {
      while (number % vector != 0) vector /= 2;
    };
    restrict_to(dimensions_[reduced_count_].size);
    for (size_t i = 0; i < dimensions_.size(); ++i) {
      if (i != reduced_count_) restrict_to(dimensions_[i].input_stride / item_bytes);
    }
    return vector;
  }

  void split() {
    (is_reduced_by_lanes_ ? input_step_ : output_step_) *= width_;
    const bool is_split_by_rows = values_per_thread() >= std::min<int64_t>(height_ * 16, 256);
    (is_split_by_rows ? input_step_ : output_step_) *= height_;
    const ClaimedDevice& device = claimed_device();
    const int64_t most_blocks =
        device.multiprocessors * (device.threads_per_multiprocessor / (width_ * height_));
    if (!is_split_by_rows || values_per_thread() < 256 || grid() > most_blocks) return;
    const int64_t values = values_per_thread();
    blocks_per_output_ = std::max(std::min(ceil_div(most_blocks, grid()), ceil_div(values, 16)),
                                  ceil_div(values, 256));
  }

  int64_t values_per_thread() const { return ceil_div(inputs_, input_step_); }
  int64_t grid() const { return ceil_div(outputs_ / output_vector_, output_step_); }

  const Dimensions& dimensions_;
  const Reduction kind_;
  size_t reduced_count_ = 0;
  int64_t inputs_ = 1;  // for each output
  int64_t outputs_ = 1;
  bool is_reduced_by_lanes_ = false;
  int64_t output_vector_ = 1;
  int64_t width_ = 1, height_ = 1;  // of a block of threads
  int64_t input_step_ = 1, output_step_ = 1;
  int64_t blocks_per_output_ = 1;
};

void add(Dimensions dimensions, int64_t item_bytes, Reduction kind, KernelRequests& requests) {
  if (!fits_32_bits(dimensions)) {
    Dimension& widest = dimensions[find_widest(dimensions)];
    const int64_t size = widest.size;
    widest.size = size / 2;
    add(dimensions, item_bytes, kind, requests);
    widest.size = size - size / 2;
    return add(dimensions, item_bytes, kind, requests);
  }
  const Launch launch(dimensions, item_bytes, kind);
  if (launch.partial_bytes() == 0) return;
  const auto first = requests.request(launch.partial_bytes());
  requests.request(launch.counter_bytes());
  requests.release_all_from(first);
}

}  // namespace

void add_reduction(const at::Tensor& input, const at::Tensor& output, uint64_t reduced,
                   Reduction kind, KernelRequests& requests) {
  if (input.numel() == 0) return;
  add(read(input, output, reduced), static_cast<int64_t>(input.itemsize()), kind, requests);
}

}  // namespace tidegauge::simulation
