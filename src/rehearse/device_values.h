// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstddef>
#include <optional>

#include "capture/hooks/simulated_depth.h"
#include "simulate/known_values.h"

/// The values of tensors on a stand-in device. A value is
///
///   known     the host sent it, or it was computed from known values
///   assumed   it was computed from unknown floating point numbers, taken for `unknown_number`
///   unknown   nobody knows; floating point numbers read as `unknown_number`, others as 0
///
/// Only in a process with the stand-in.
namespace tidegauge::rehearsal {

/// What unknown floating point numbers read as.
double unknown_number();
void set_unknown_number(double number);

/// Larger tensors have values only if all their elements are equal.
inline constexpr int64_t kMostIntegers = int64_t{1} << 20;
inline constexpr int64_t kMostNumbers = 4096;

/// Hides ops on tensors of the host from trackers, Python modes, autocast and autograd.
struct OutOfSight {
  SimulatedDepth no_allocations;
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
  simulation::known_values::OutOfSight others;
};

enum class Knowledge { Known, Assumed, Unknown };
Knowledge find_knowledge(const at::Tensor& tensor);

/// The values of a small tensor, on the host.
at::Tensor read(const at::Tensor& tensor);
/// The value of all elements of a tensor of any size, if they are equal. Complex numbers have none.
std::optional<c10::Scalar> find_common(const at::Tensor& tensor);

/// Gives a tensor the values of a tensor of the host of the same shape.
void write(const at::Tensor& tensor, const at::Tensor& values, bool is_assumed);
void write_common(const at::Tensor& tensor, const c10::Scalar& value, bool is_assumed);
void forget(const at::Tensor& tensor);

/// While it lives, unknown elements that this thread reads are of this dtype; integers are `count`.
class ReadScope {
 public:
  explicit ReadScope(at::ScalarType type, int64_t count = 0);
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;
  ~ReadScope();

 private:
  struct Element {
    std::array<unsigned char, 16> bytes{};
    size_t size_bytes = 0;
  };
  static thread_local constinit Element current_;
  static thread_local constinit int64_t count_;
  Element before_;
  int64_t count_before_;
};

}  // namespace tidegauge::rehearsal
