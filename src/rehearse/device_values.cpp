// SPDX-License-Identifier: BSD-3-Clause
#include "rehearse/device_values.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstring>

#include "rehearse/standin.h"

namespace tidegauge::rehearsal {
namespace {

double number = 1.0;

bool has_numbers(at::ScalarType type) {
  return type == at::kBool || type == at::kHalf || type == at::kBFloat16 ||
         c10::isIntegralType(type, false) || type == at::kFloat || type == at::kDouble ||
         type == at::kComplexFloat || type == at::kComplexDouble;
}

/// The bytes of `value` as an element of this dtype.
size_t make_element(const c10::Scalar& value, at::ScalarType type, void* bytes) {
  size_t size_bytes = 0;
  AT_DISPATCH_V2(type, "rehearsal", AT_WRAP([&] {
                   const auto element = value.to<scalar_t>();
                   size_bytes = sizeof element;
                   std::memcpy(bytes, &element, sizeof element);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 at::kBool, at::kHalf, at::kBFloat16);
  return size_bytes;
}

/// The elements without the repetitions of an expanded tensor.
at::Tensor shrink(const at::Tensor& tensor) {
  at::Tensor shrunk = tensor;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (shrunk.stride(dim) == 0 && shrunk.size(dim) > 1) shrunk = shrunk.narrow(dim, 0, 1);
  }
  return shrunk;
}

/// The memory from the first to the last element.
struct Span {
  char* begin;
  size_t size_bytes;
};
Span span_of(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto size = static_cast<size_t>(last + 1) * tensor.element_size();
  return {static_cast<char*>(const_cast<void*>(tensor.const_data_ptr())), size};
}

bool is_dense(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

}  // namespace

double unknown_number() { return number; }
void set_unknown_number(double value) { number = value; }

Knowledge find_knowledge(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || !tensor.is_cuda()) return Knowledge::Known;
  const Span span = span_of(tensor);
  std::array<unsigned char, 16> element{};
  size_t element_bytes = 0;
  int is_assumed = 0;
  const int found = find_standin()->look(span.begin, span.size_bytes, element.data(),
                                         &element_bytes, &is_assumed);
  if (found == 0) return Knowledge::Unknown;
  // Between the elements of a strided tensor are others.
  if (is_assumed != 0) return Knowledge::Assumed;
  return found == 3 && is_dense(tensor) ? Knowledge::Assumed : Knowledge::Known;
}

at::Tensor read(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  const OutOfSight guard;
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), tensor.scalar_type());
  const Span span = span_of(tensor);
  const auto elements = static_cast<int64_t>(span.size_bytes / tensor.element_size());
  const at::Tensor all = at::empty({elements}, at::TensorOptions(tensor.scalar_type()));
  {
    const ReadScope scope(tensor.scalar_type());
    find_standin()->read(all.mutable_data_ptr(), span.begin, span.size_bytes);
  }
  return all.as_strided(tensor.sizes(), tensor.strides());
}

std::optional<c10::Scalar> find_common(const at::Tensor& tensor) {
  const OutOfSight guard;
  if (tensor.numel() == 0 || tensor.is_complex() || !has_numbers(tensor.scalar_type())) return {};
  const at::Tensor shrunk = shrink(tensor);
  if (!shrunk.is_cuda()) return shrunk.numel() == 1 ? std::optional(shrunk.item()) : std::nullopt;
  if (shrunk.numel() == 1) return read(shrunk).item();
  const Span span = span_of(shrunk);
  std::array<unsigned char, 16> element{};
  size_t element_bytes = 0;
  int is_assumed = 0;
  const int found = find_standin()->look(span.begin, span.size_bytes, element.data(),
                                         &element_bytes, &is_assumed);
  if (found > 1) return std::nullopt;
  const at::Tensor one = at::empty({1}, at::TensorOptions(tensor.scalar_type()));
  if (found == 0) {
    return c10::isFloatingType(tensor.scalar_type()) ? c10::Scalar(number) : c10::Scalar(0);
  }
  const size_t wanted = tensor.element_size();
  if (wanted % element_bytes != 0) return std::nullopt;
  for (size_t at = 0; at < wanted; at += element_bytes) {
    std::memcpy(static_cast<char*>(one.mutable_data_ptr()) + at, element.data(), element_bytes);
  }
  return one.item();
}

void write(const at::Tensor& tensor, const at::Tensor& values, bool is_assumed) {
  if (tensor.numel() == 0 || tensor.sizes() != values.sizes()) return;
  const OutOfSight guard;
  const Standin& standin = *find_standin();
  if (is_dense(tensor)) {
    const at::Tensor same =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    same.copy_(values);
    standin.write(tensor.mutable_data_ptr(), same.const_data_ptr(), tensor.nbytes(),
                  is_assumed ? 1 : 0);
    return;
  }
  if (tensor.numel() > kMostNumbers) return forget(tensor);
  // Element by element: others are between them.
  const at::Tensor flat = values.to(tensor.scalar_type()).contiguous().view(-1);
  auto* base = static_cast<char*>(tensor.mutable_data_ptr());
  const size_t size_bytes = tensor.element_size();
  for (int64_t position = 0; position < flat.numel(); ++position) {
    int64_t offset = 0;
    int64_t rest = position;
    for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
      offset += (rest % tensor.size(dim)) * tensor.stride(dim);
      rest /= tensor.size(dim);
    }
    const auto* element = static_cast<const char*>(flat.const_data_ptr());
    standin.write(base + static_cast<size_t>(offset) * size_bytes,
                  element + static_cast<size_t>(position) * size_bytes, size_bytes,
                  is_assumed ? 1 : 0);
  }
}

void write_common(const at::Tensor& tensor, const c10::Scalar& value, bool is_assumed) {
  if (tensor.numel() == 0 || !has_numbers(tensor.scalar_type())) return;
  if (!is_dense(tensor)) return forget(tensor);
  std::array<unsigned char, 16> element{};
  const size_t size_bytes = make_element(value, tensor.scalar_type(), element.data());
  find_standin()->write_equal(tensor.mutable_data_ptr(), tensor.nbytes(), element.data(),
                              size_bytes, is_assumed ? 1 : 0);
}

void forget(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0) return;
  const Span span = span_of(tensor);
  find_standin()->forget(reinterpret_cast<uint64_t>(span.begin), span.size_bytes);
}

thread_local constinit ReadScope::Element ReadScope::current_{};
thread_local constinit int64_t ReadScope::count_ = 0;

ReadScope::ReadScope(at::ScalarType type, int64_t count)
    : before_(current_), count_before_(count_) {
  if (count != 0) count_ = count;
  current_ = {};
  const bool is_float = c10::isFloatingType(type);
  if (has_numbers(type) && (is_float || (count_ != 0 && type != at::kBool))) {
    const c10::Scalar value = is_float ? c10::Scalar(number) : c10::Scalar(count_);
    current_.size_bytes = make_element(value, type, current_.bytes.data());
  }
  find_standin()->set_unknown(current_.bytes.data(), current_.size_bytes);
}

ReadScope::~ReadScope() {
  current_ = before_;
  count_ = count_before_;
  find_standin()->set_unknown(current_.bytes.data(), current_.size_bytes);
}

}  // namespace tidegauge::rehearsal
