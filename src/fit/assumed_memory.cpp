// SPDX-License-Identifier: BSD-3-Clause
#include "fit/assumed_memory.h"

#include <array>
#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 60;

// Indexed by BandPoint. These values are chosen, not measured: callers that know their machine set
// the assumption.
using Band = std::array<int64_t, 3>;
constexpr Band kContext{300 * kMebibyte, 500 * kMebibyte, 800 * kMebibyte};
constexpr Band kCommunication{256 * kMebibyte, 512 * kMebibyte, 1024 * kMebibyte};

// torch's default for CUBLAS_WORKSPACE_CONFIG: 4,096 KiB x 8 on Hopper and later; 4,096 KiB x 2 and
// 16 KiB x 8 before.
constexpr int64_t kLargeWorkspaceBytes = 33'554'432;
constexpr int64_t kWorkspaceBytes = 8'519'680;
constexpr int kLargeWorkspaceCompute = 9;

void check(const char* name, int64_t value) {
  if (value >= 0 && value <= kMostBytes) return;
  throw UsageError("invalid assumption " + std::string(name) + " = " + std::to_string(value) +
                   " (expected 0 to 2^60)");
}

}  // namespace

Assumptions resolve(const Assumptions& given, AssumedFor target, BandPoint point) {
  const auto at = static_cast<size_t>(point);
  Assumptions resolved = given;
  resolved.context_bytes = given.context_bytes.value_or(kContext[at]);
  resolved.cublas_workspace_bytes = given.cublas_workspace_bytes.value_or(
      target.compute >= kLargeWorkspaceCompute ? kLargeWorkspaceBytes : kWorkspaceBytes);
  resolved.communication_bytes =
      given.communication_bytes.value_or(target.world_size > 1 ? kCommunication[at] : 0);
  check("context_bytes", *resolved.context_bytes);
  check("cublas_workspaces", resolved.cublas_workspaces);
  check("cublas_workspace_bytes", *resolved.cublas_workspace_bytes);
  int64_t product = 0;
  if (__builtin_mul_overflow(resolved.cublas_workspaces, *resolved.cublas_workspace_bytes,
                             &product)) {
    product = -1;
  }
  check("cublas_workspaces x cublas_workspace_bytes", product);
  check("communication_bytes", *resolved.communication_bytes);
  return resolved;
}

int64_t workspace_bytes(const Assumptions& resolved) {
  return resolved.cublas_workspaces * *resolved.cublas_workspace_bytes;
}

int64_t total_bytes(const Assumptions& resolved) {
  return *resolved.context_bytes + workspace_bytes(resolved) + *resolved.communication_bytes;
}

}  // namespace tidegauge
