// SPDX-License-Identifier: BSD-3-Clause
#include "track/mem_snapshots.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <span>
#include <utility>

#include "core/ledger/labeller.h"
#include "core/util/byte_text.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// Up to GiB, as torch prints.
constexpr std::span<const ByteUnit> kTorchUnits = std::span(kByteUnits).first<4>();

ByteUnit find_unit(std::string_view name) {
  for (const ByteUnit& unit : kTorchUnits) {
    if (unit.name == name) return unit;
  }
  throw UsageError("Unsupported unit: " + std::string(name) +
                   ". Supported units are: B, KiB, MiB, GiB");
}

/// Formats like `round(bytes / unit, 2)` in Python: one or two decimals, none for bytes.
std::string round_bytes(int64_t bytes, const ByteUnit& unit) {
  if (unit.bytes == 1) return std::to_string(bytes);
  std::array<char, 64> text{};
  const double value = static_cast<double>(bytes) / static_cast<double>(unit.bytes);
  std::string digits(text.data(),
                     static_cast<size_t>(std::snprintf(text.data(), text.size(), "%.2f", value)));
  if (digits.back() == '0') digits.pop_back();
  return digits;
}

std::string render(const MemSnapshot& snapshot, const ByteUnit& unit) {
  if (snapshot.devices.empty()) return "No memory tracked.\n";
  std::string text;
  const auto add = [&](std::string_view name, const std::string& size) {
    text.append("\t").append(name).append(": ").append(size).append(" ").append(unit.name);
    text.append("\n");
  };
  for (const DeviceMemory& entry : snapshot.devices) {
    const std::string total = round_bytes(entry.total_bytes(), unit);
    if (total == "0" || total == "0.0") continue;
    text.append("Device: ").append(entry.device.str()).append("\n");
    for (size_t i = 0; i < kMemCategoryCount; ++i) {
      add(to_string(static_cast<MemCategory>(i)), round_bytes(entry.bytes[i], unit));
    }
    add("Total", total);
  }
  return text;
}

/// A sort key that puts "layers.10" after "layers.9" and ignores case. The number of digits comes
/// before each number, so that keys can be compared as text.
std::vector<std::pair<size_t, std::string>> natural_order(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::vector<std::pair<size_t, std::string>> pieces(1);
  bool in_number = false;
  for (const char c : name) {
    if (is_digit(c) != in_number) {
      in_number = !in_number;
      pieces.emplace_back();
    }
    std::string& piece = pieces.back().second;
    if (in_number && piece == "0") piece.clear();
    piece += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (in_number) pieces.back().first = piece.size();
  }
  if (in_number) pieces.emplace_back();
  return pieces;
}

std::array<std::pair<SizeOf, std::optional<int64_t> ModMemStats::*>, kSizeOfCount> sizes() {
  return {{
      {SizeOf::Parameters, &ModMemStats::parameter_mem},
      {SizeOf::Buffers, &ModMemStats::buffer_mem},
      {SizeOf::Inputs, &ModMemStats::input_mem},
      {SizeOf::Outputs, &ModMemStats::output_mem},
  }};
}

}  // namespace

c10::Device to_torch(Device device) {
  return {static_cast<c10::DeviceType>(device.type), device.index};
}

MemSnapshot to_mem_snapshot(const Snapshot& snapshot) {
  MemSnapshot result;
  for (const DeviceSplit& entry : snapshot.devices) {
    result.devices.push_back({to_torch(entry.device), to_mem_split(entry.split)});
  }
  return result;
}

UnitMemory to_unit_memory(const UnitReport& unit) {
  const auto to_bytes = [](Device device, const CategorySplit& split) {
    return UnitBytes{to_torch(device), split.bytes};
  };
  const auto to_ns = [](const std::optional<Instant>& instant) {
    return instant ? std::optional(instant->time_ns) : std::nullopt;
  };
  UnitMemory result;
  result.name = unit.name;
  result.state = unit.state;
  result.reduce_count = unit.reduce_count;
  for (const auto& [device, split] : unit.now) result.now.push_back(to_bytes(device, split));
  for (const auto& [device, split] : unit.at_peak) {
    result.at_peak.push_back(to_bytes(device, split));
    result.peak_share.push_back(unit.peak_share.at(device));
  }
  for (const Gathering& each : unit.gatherings) {
    result.gatherings.push_back(
        {each.reason, each.begun.time_ns, to_ns(each.complete), to_ns(each.released)});
  }
  for (const UnitChange& each : unit.timeline) {
    result.timeline.push_back({each.time_ns, to_bytes(each.device, each.split)});
  }
  return result;
}

ModMemStats to_mod_mem_stats(const ModuleStats& stats, std::string mod_fqn) {
  ModMemStats result;
  result.mod_fqn = std::move(mod_fqn);
  for (const auto& [size_of, member] : sizes()) result.*member = stats.size_bytes(size_of);
  if (const Snapshot* peak = local_peak(stats)) {
    for (const DeviceSplit& entry : peak->devices) {
      result.local_peak.emplace_back(to_torch(entry.device), entry.split.total());
    }
  }
  for (const ModuleState state : states_in_order(stats)) {
    auto& calls = result.snapshots.emplace_back(state, std::vector<MemSnapshot>()).second;
    for (const ModuleSnapshot& call : stats[state]) calls.push_back(to_mem_snapshot(call.bytes));
  }
  return result;
}

std::string render_snapshot(const MemSnapshot& snapshot, std::string_view units) {
  return render(snapshot, find_unit(units));
}

std::string render_modulewise_snapshots(std::vector<ModMemStats> modules, int depth,
                                        std::string_view units) {
  const ByteUnit unit = find_unit(units);
  std::stable_sort(modules.begin(), modules.end(), [](const ModMemStats& a, const ModMemStats& b) {
    return natural_order(a.mod_fqn) < natural_order(b.mod_fqn);
  });
  std::string text;
  for (const ModMemStats& module : modules) {
    if (std::count(module.mod_fqn.begin(), module.mod_fqn.end(), '.') >= depth) continue;
    text += "Module:  " + module.mod_fqn + "\n";
    for (const auto& [state, calls] : module.snapshots) {
      text.append(to_string(state)).append("\n");
      for (size_t i = 0; i < calls.size(); ++i) {
        text += "# " + std::to_string(i + 1) + ":\n" + render(calls[i], unit);
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace tidegauge
