// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>

#include "core/util/byte_text.h"

namespace tidegauge::out_of_memory {
namespace {

std::optional<int64_t> read_size(std::string_view text) {
  int64_t whole = 0;
  const auto digits = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (digits.ec == std::errc() &&
      text.substr(static_cast<size_t>(digits.ptr - text.data())).starts_with(" bytes"))
    return whole;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.starts_with(' ')) return std::nullopt;
  text.remove_prefix(1);
  for (const ByteUnit& unit : kByteUnits) {
    if (!text.starts_with(unit.name)) continue;
    const double size_bytes = std::round(value * static_cast<double>(unit.bytes));
    if (size_bytes < 9.2e18) return static_cast<int64_t>(size_bytes);
  }
  return std::nullopt;
}

/// The text after `mark`; none if `mark` does not occur.
std::optional<std::string_view> find_after(std::string_view text, std::string_view mark) {
  const size_t position = text.find(mark);
  if (position == std::string_view::npos) return std::nullopt;
  return text.substr(position + mark.size());
}

}  // namespace

std::optional<FailedAllocation> read(std::string_view message) {
  if (const auto size = find_after(message,
                                   "DefaultCPUAllocator: can't allocate memory: you tried"
                                   " to allocate ")) {
    return FailedAllocation{read_size(*size), "cpu"};
  }
  if (message.find("DefaultCPUAllocator: not enough memory") != std::string_view::npos) {
    const auto size = find_after(message, "you tried to allocate ");
    return FailedAllocation{size ? read_size(*size) : std::nullopt, "cpu"};
  }
  if (message.find("out of memory") == std::string_view::npos) return std::nullopt;
  const auto size = find_after(message, "Tried to allocate ");
  if (!size) return std::nullopt;
  FailedAllocation failed{read_size(*size), {}};
  if (const auto number = find_after(message, "GPU "); number && !number->empty()) {
    const size_t digits = std::min(number->find_first_not_of("0123456789"), number->size());
    if (digits > 0) failed.device.append("cuda:").append(number->substr(0, digits));
  }
  return failed;
}

std::optional<FailedAllocation> read(const std::exception& error) {
  if (auto failed = read(std::string_view(error.what()))) return failed;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return FailedAllocation{};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return FailedAllocation{std::nullopt, "cpu"};
  }
  return std::nullopt;
}

}  // namespace tidegauge::out_of_memory
