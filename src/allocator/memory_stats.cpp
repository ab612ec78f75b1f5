// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/memory_stats.h"

#include "allocator/alloc_config.h"

namespace tidegauge {
namespace {

using Member = StatByPool MemoryStats::*;

constexpr std::pair<const char*, Member> kStats[] = {
    {"allocation", &MemoryStats::allocation},
    {"active", &MemoryStats::active},
    {"segment", &MemoryStats::segment},
    {"inactive_split", &MemoryStats::inactive_split},
    {"allocated_bytes", &MemoryStats::allocated_bytes},
    {"active_bytes", &MemoryStats::active_bytes},
    {"reserved_bytes", &MemoryStats::reserved_bytes},
    {"inactive_split_bytes", &MemoryStats::inactive_split_bytes},
    {"requested_bytes", &MemoryStats::requested_bytes},
};

constexpr std::pair<const char*, Stat MemoryStats::*> kOversize[] = {
    {"oversize_allocations", &MemoryStats::oversize_allocations},
    {"oversize_segments", &MemoryStats::oversize_segments},
};

constexpr std::pair<const char*, int64_t MemoryStats::*> kCounts[] = {
    {"num_alloc_retries", &MemoryStats::num_alloc_retries},
    {"num_ooms", &MemoryStats::num_ooms},
    {"num_sync_all_streams", &MemoryStats::num_sync_all_streams},
    {"num_device_alloc", &MemoryStats::num_device_alloc},
    {"num_device_free", &MemoryStats::num_device_free},
    {"num_oom_rejections", &MemoryStats::num_oom_rejections},
};

void append(FlatStats& flat, const std::string& name, const Stat& stat) {
  flat.emplace_back(name + ".current", stat.current);
  flat.emplace_back(name + ".peak", stat.peak);
  flat.emplace_back(name + ".allocated", stat.allocated);
  flat.emplace_back(name + ".freed", stat.freed);
}

}  // namespace

void MemoryStats::reset_peak() {
  for (const auto& [name, member] : kStats) {
    (this->*member).for_each([](Stat& stat) { stat.reset_peak(); });
  }
  for (const auto& [name, member] : kOversize) (this->*member).reset_peak();
}

void MemoryStats::reset_accumulated() {
  for (const auto& [name, member] : kStats) {
    (this->*member).for_each([](Stat& stat) { stat.reset_accumulated(); });
  }
  for (const auto& [name, member] : kOversize) (this->*member).reset_accumulated();
  for (const auto& [name, member] : kCounts) this->*member = 0;
}

void append_flat(FlatStats& flat, const std::string& name, const StatByPool& stat) {
  append(flat, name + ".all", stat.all());
  append(flat, name + ".small_pool", stat.small_pool());
  append(flat, name + ".large_pool", stat.large_pool());
}

FlatStats to_flat(const MemoryStats& stats, int64_t max_split_bytes) {
  FlatStats flat;
  for (const auto& [name, member] : kStats) append_flat(flat, name, stats.*member);
  for (const auto& [name, member] : kOversize) append(flat, name, stats.*member);
  for (const auto& [name, member] : kCounts) flat.emplace_back(name, stats.*member);
  flat.emplace_back("max_split_size", max_split_bytes == kNoLimit ? -1 : max_split_bytes);
  std::sort(flat.begin(), flat.end());
  return flat;
}

}  // namespace tidegauge
