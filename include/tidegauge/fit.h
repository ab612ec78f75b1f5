// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidegauge {

/// A kind of device, such as a GPU model.
struct DeviceModel {
  std::string key;           ///< "h100-80g"; empty for a device of the caller's own
  std::string name;          ///< "NVIDIA H100 80 GB"
  int64_t memory_bytes = 0;  ///< total_memory of torch.cuda.get_device_properties
  int compute = 8;           ///< major compute capability; cuBLAS sizes its workspaces by it
  int compute_minor = 0;
  int multiprocessors = 108;
  /// Of the memory: an address, or what torch printed; empty for a caller's own.
  std::string source = {};
};

/// The devices that tidegauge knows, smallest memory first.
const std::vector<DeviceModel>& device_catalogue();
/// Ignores case. Null for a key that is not in the catalogue.
const DeviceModel* find_device(std::string_view key);

/// Memory that is not in the trace. A member that is not set gets a default, which may be a band. A
/// member that the caller sets is exact.
struct Assumptions {
  std::optional<int64_t> context_bytes{};  ///< CUDA context and library code: 500 MiB (300 to 800)
  int64_t cublas_workspaces = 2;           ///< one for the forward, one for the autograd thread
  /// 32 MiB each for compute capability 9 or higher, else 8.125 MiB, also if no device is named.
  std::optional<int64_t> cublas_workspace_bytes{};
  /// Buffers of NCCL: 512 MiB (256 to 1,024) if the run had several ranks, else 0.
  std::optional<int64_t> communication_bytes{};
};

/// How the size of a layer was determined. A Sum adds up the layers above it.
enum class Basis : uint8_t { Sum, Measured, Simulated, Modelled, Assumed };
std::string_view to_string(Basis basis);

/// A part of the memory on a device, and the band of its size.
struct Layer {
  std::string name;
  Basis basis{};
  int64_t size_bytes = 0;
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;
};

enum class Fit : uint8_t { Fits, FitsAfterRetries, TooCloseToCall, DoesNotFit };
/// "fits", "fits after retries", "too close to call", "does not fit"
std::string_view to_string(Fit fit);

/// Whether a run fits a device. Every command and report applies this one rule.
///
///   tensors              measured    bytes that tensors request (or: simulated)   .
///   rounding and slack   modelled    to 512 bytes, and remainders too small      | at the peak
///   = active                                                                     | of reserved
///   unused in segments   modelled    fragmentation                               '
///   = reserved                       memory that torch's allocator gets from the driver
///   cuBLAS workspaces    assumed     not for a simulated GPU, where they are requests
///   CUDA context         assumed
///   communication        assumed
///   = on the device                  needed_bytes: the figure of nvidia-smi
///
/// The band low_bytes to high_bytes adds up the bands of `reserved` and of the assumptions.
/// `reserved` varies with the mode of the allocator: if the caller names no settings, torch's two
/// modes count, plain segments and expandable_segments:True.
///
///   low -- needed -- high        memory
///    |-------*--------|            |      fits: high <= memory
///    |-------*---------------------|--|   fits after retries: no mode fails, even with the most
///                                       assumed; the allocator frees cached segments and asks the
///                                       driver again
///    |-------*---------------------|--|   too close to call: with the most assumed, a mode fails;
///                                       with the least assumed, a mode does not
///                                  |  |-* does not fit: with the least assumed, every mode fails
struct Verdict {
  std::optional<Fit> fit{};  ///< nothing if no device was named
  int64_t needed_bytes = 0;
  int64_t low_bytes = 0;
  int64_t high_bytes = 0;
  std::optional<int64_t> margin_bytes{};  ///< memory of the device minus `needed_bytes`
  int64_t failed_requests = 0;            ///< on the device, with the expected assumptions
  std::vector<Layer> layers{};            ///< in the first mode, with the expected assumptions
  Assumptions assumptions{};              ///< with every member set
  std::optional<DeviceModel> smallest{};  ///< the smallest device of the catalogue with Fit::Fits
  std::string traced_device{};            ///< the device whose tensors were judged: "cuda:0"
};

struct FitOptions {
  std::optional<DeviceModel> device{};
  /// In the form of PYTORCH_CUDA_ALLOC_CONF. Not set: both modes of the allocator count.
  std::optional<std::string> alloc_conf{};
  Assumptions assumptions{};
  /// Which of several equally good free blocks the allocator uses: "address", "counter" or
  /// "private-counter" (docs/allocator.md). Not set: the rule of the torch that recorded the trace.
  std::optional<std::string> tie{};
  /// The device whose tensors are judged. Not set: the device with the highest peak other than the
  /// CPU, or else the CPU.
  std::optional<std::string> traced_device{};
  /// The devices to search for the smallest one. Not set: device_catalogue().
  std::optional<std::vector<DeviceModel>> catalogue{};
};

/// Judges a trace file, wherever it was recorded. Throws FormatError or IoError if it cannot be
/// read, and UsageError for settings that torch rejects, for a device that the run did not use and
/// for assumptions below 0.
Verdict judge(const std::string& trace, const FitOptions& options = {});

}  // namespace tidegauge
