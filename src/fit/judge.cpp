// SPDX-License-Identifier: BSD-3-Clause
#include "fit/judge.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "fit/assumed_memory.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// The outcome of a run on a device.
enum class Course : uint8_t { Smooth, FreesCache, Fails };

/// Judges one run under some modes of the allocator on one device.
class Judge {
 public:
  Judge(Replays& replays, RunKind run, const FitOptions& options)
      : replays_(replays), run_(run), options_(options) {
    if (options.alloc_conf) {
      modes_ = {*options.alloc_conf};
    } else {
      modes_ = {"", "expandable_segments:True"};
    }
    low_reserved_ = high_reserved_ = expected().peak_reserved_bytes;
    for (const std::string& mode : modes_) {
      const int64_t reserved = replays_.run(mode).figures.peak_reserved_bytes;
      low_reserved_ = std::min(low_reserved_, reserved);
      high_reserved_ = std::max(high_reserved_, reserved);
    }
  }

  Verdict verdict() {
    Verdict verdict;
    verdict.assumptions = assume(BandPoint::Expected, named_compute());
    verdict.needed_bytes = expected().peak_reserved_bytes + total_bytes(verdict.assumptions);
    verdict.low_bytes = low_reserved_ + outside(BandPoint::Low);
    verdict.high_bytes = high_reserved_ + outside(BandPoint::High);
    verdict.layers = layers();
    if (options_.device) {
      const int64_t memory_bytes = options_.device->memory_bytes;
      verdict.margin_bytes = memory_bytes - verdict.needed_bytes;
      verdict.fit = fit(verdict.high_bytes);
      verdict.failed_requests =
          on_device(modes_.front(), outside(BandPoint::Expected)).figures.out_of_memory;
    }
    const auto& catalogue = options_.catalogue ? *options_.catalogue : device_catalogue();
    for (const DeviceModel& model : catalogue) {
      const int64_t most = total_bytes(assume(BandPoint::High, model.compute));
      if (high_reserved_ + most > model.memory_bytes) continue;
      verdict.smallest = model;
      break;
    }
    return verdict;
  }

 private:
  int named_compute() const { return options_.device ? options_.device->compute : kDefaultCompute; }
  Assumptions assume(BandPoint point, int compute) const {
    Assumptions given = options_.assumptions;
    if (run_.has_workspaces) given.cublas_workspaces = 0;
    return resolve(given, {compute, run_.world_size}, point);
  }
  /// Bytes on the device outside of torch's allocator.
  int64_t outside(BandPoint point) const { return total_bytes(assume(point, named_compute())); }
  const RunFigures& expected() { return replays_.run(modes_.front()).figures; }

  Fit fit(int64_t high_bytes) {
    const auto course = [&](BandPoint point) {
      Course worst = Course::Smooth, best = Course::Fails;
      for (const std::string& mode : modes_) {
        const Course each = course_of(mode, outside(point));
        worst = std::max(worst, each);
        best = std::min(best, each);
      }
      return std::pair(worst, best);
    };
    const Course worst = course(BandPoint::High).first;
    if (worst == Course::Smooth && high_bytes <= options_.device->memory_bytes) return Fit::Fits;
    if (worst != Course::Fails) return Fit::FitsAfterRetries;
    const Course best = course(BandPoint::Low).second;
    return best == Course::Fails ? Fit::DoesNotFit : Fit::TooCloseToCall;
  }

  Course course_of(const std::string& mode, int64_t outside_bytes) {
    // No simulation is needed if even the active bytes do not fit.
    const int64_t active_bytes = replays_.run(mode).figures.peak_active_bytes;
    if (active_bytes + outside_bytes > options_.device->memory_bytes) return Course::Fails;
    const SimulatedRun& run = on_device(mode, outside_bytes);
    if (run.figures.out_of_memory > 0) return Course::Fails;
    return run.retries > 0 ? Course::FreesCache : Course::Smooth;
  }

  /// Simulates the limit of the device only if it can make a difference.
  const SimulatedRun& on_device(const std::string& mode, int64_t outside_bytes) {
    const SimulatedRun& unlimited = replays_.run(mode);
    const AllocConfig config = parse_alloc_config(mode);
    const bool has_limit_of_its_own =
        config.per_process_memory_fraction < 1 || config.garbage_collection_threshold > 0;
    const int64_t memory_bytes = options_.device->memory_bytes;
    const bool is_enough = unlimited.figures.peak_reserved_bytes + outside_bytes <= memory_bytes;
    if (is_enough && !has_limit_of_its_own) return unlimited;
    return replays_.run(mode, memory_bytes, outside_bytes);
  }

  std::vector<Layer> layers() {
    const RunFigures& figures = expected();
    const int64_t reserved = figures.peak_reserved_bytes;
    const int64_t unused = figures.unused_at_peak_bytes;
    const int64_t slack = figures.slack_at_peak_bytes;
    std::vector<Layer> layers;
    const auto add = [&](const char* name, Basis basis, int64_t size_bytes) {
      layers.push_back({name, basis, size_bytes, size_bytes, size_bytes});
    };
    add("tensors", run_.tensors, reserved - unused - slack);
    add("rounding and slack", Basis::Modelled, slack);
    add("active", Basis::Sum, reserved - unused);
    add("unused in segments", Basis::Modelled, unused);
    layers.push_back({"reserved", Basis::Sum, reserved, low_reserved_, high_reserved_});
    const auto add_assumed = [&](const char* name, auto size_of) {
      const auto at = [&](BandPoint point) { return size_of(assume(point, named_compute())); };
      layers.push_back(
          {name, Basis::Assumed, at(BandPoint::Expected), at(BandPoint::Low), at(BandPoint::High)});
    };
    if (!run_.has_workspaces) add_assumed("cuBLAS workspaces", workspace_bytes);
    add_assumed("CUDA context", [](const Assumptions& each) { return *each.context_bytes; });
    add_assumed("communication", [](const Assumptions& each) { return *each.communication_bytes; });
    layers.push_back({"on the device", Basis::Sum, reserved + outside(BandPoint::Expected),
                      low_reserved_ + outside(BandPoint::Low),
                      high_reserved_ + outside(BandPoint::High)});
    return layers;
  }

  Replays& replays_;
  const RunKind run_;
  const FitOptions& options_;
  std::vector<std::string> modes_;  // the layers describe the first one
  int64_t low_reserved_ = 0;
  int64_t high_reserved_ = 0;
};

bool is_accelerator(std::string_view device) {
  const std::string_view type = device.substr(0, device.find(':'));
  return type != "cpu" && type != "meta";
}

}  // namespace

std::string_view to_string(Basis basis) {
  switch (basis) {
    case Basis::Sum:
      return "sum";
    case Basis::Measured:
      return "measured";
    case Basis::Simulated:
      return "simulated";
    case Basis::Modelled:
      return "modelled";
    case Basis::Assumed:
      return "assumed";
  }
  return "";
}

std::string_view to_string(Fit fit) {
  switch (fit) {
    case Fit::Fits:
      return "fits";
    case Fit::FitsAfterRetries:
      return "fits after retries";
    case Fit::TooCloseToCall:
      return "too close to call";
    case Fit::DoesNotFit:
      return "does not fit";
  }
  return "";
}

RunKind read_run_kind(const std::map<std::string, std::string>& facts) {
  RunKind kind;
  if (const auto found = facts.find("world_size"); found != facts.end()) {
    const std::string& text = found->second;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error == std::errc() && end == text.data() + text.size() && size > 0) {
      kind.world_size = size;
    }
  }
  if (facts.contains("simulated")) kind.tensors = Basis::Simulated;
  kind.has_workspaces = facts.contains("workspaces");
  return kind;
}

TieRule choose_tie_rule(const std::optional<std::string>& name,
                        const std::map<std::string, std::string>& facts) {
  if (name) return parse_tie_rule(*name);
  const auto version = facts.find("torch_version");
  return find_tie_rule(version != facts.end() ? version->second : "");
}

Verdict judge(Replays& replays, RunKind run, const FitOptions& options) {
  return Judge(replays, run, options).verdict();
}

std::string choose_device(const DevicePeaks& peaks, const std::optional<std::string>& wanted) {
  std::string seen, chosen = to_string(kCpu);
  int64_t highest = -1;
  for (const auto& [device, bytes] : peaks) {
    if (device == wanted) return device;
    seen += (seen.empty() ? "" : ", ") + device;
    if (!is_accelerator(device) || bytes <= highest) continue;
    chosen = device;
    highest = bytes;
  }
  if (wanted) {
    throw UsageError("the run used no memory on device '" + *wanted +
                     "' (it used: " + (seen.empty() ? "none" : seen) + ")");
  }
  return chosen;
}

RequestStream read_requests(EventSource& source, Device device) {
  RequestStream requests(device);
  source.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t) { requests.add(event); });
  return requests;
}

}  // namespace tidegauge
