// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidegauge {

/// A kind of device to ask about.
struct DeviceModel {
  std::string key;           ///< "h100-80g"; empty for a device of the caller's own
  std::string name;          ///< "NVIDIA H100 80 GB"
  int64_t memory_bytes = 0;  ///< total_memory of torch.cuda.get_device_properties
  int compute = 8;           ///< major compute capability; cuBLAS sizes its workspaces by it
};

/// The devices that tidegauge knows, the smallest memory first.
const std::vector<DeviceModel>& device_catalogue();
/// Upper and lower case are the same. Null for a key that is not in the catalogue.
const DeviceModel* find_device(std::string_view key);

/// Memory that no trace shows. A member that is not set is assumed, and may lie in a band; a member
/// that the caller sets is exact.
struct Assumptions {
  std::optional<int64_t> context_bytes{};  ///< CUDA context and library code: 500 MiB (300 to 800)
  int64_t cublas_workspaces = 2;           ///< one for the forward, one for the autograd thread
  /// 32 MiB each from compute capability 9 on, else 8.125 MiB; 8 is assumed without a device.
  std::optional<int64_t> cublas_workspace_bytes{};
  /// Buffers of NCCL: 512 MiB (256 to 1,024) if the run had several ranks, else 0.
  std::optional<int64_t> communication_bytes{};
};

/// What the size of a layer rests on. A Sum adds up the layers above it.
enum class Basis : uint8_t { Sum, Measured, Simulated, Modelled, Assumed };
std::string_view to_string(Basis basis);

/// A part of the memory of a device, and the band that it may lie in.
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
///   tensors              measured    bytes that tensors ask for (or: simulated)   .
///   rounding and slack   modelled    to 512 bytes, and rests too small to split  | at the peak
///   = active                                                                     | of reserved
///   unused in segments   modelled    fragmentation                               '
///   = reserved                       what torch's allocator gets from the driver
///   cuBLAS workspaces    assumed
///   CUDA context         assumed
///   communication        assumed
///   = on the device                  what nvidia-smi shows: needed_bytes
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
  std::optional<int64_t> margin_bytes{};  ///< memory of the device less `needed_bytes`
  int64_t failed_requests = 0;            ///< on the device, with what is expected
  std::vector<Layer> layers{};            ///< under the first mode, with what is expected
  Assumptions assumptions{};              ///< with every member set
  std::optional<DeviceModel> smallest{};  ///< the first of the catalogue with Fit::Fits
  std::string traced_device{};            ///< whose tensors were taken: "cuda:0"
};

struct FitOptions {
  std::optional<DeviceModel> device{};
  /// As PYTORCH_CUDA_ALLOC_CONF. Not set: both modes of the allocator count.
  std::optional<std::string> alloc_conf{};
  Assumptions assumptions{};
  /// Whose tensors are taken. Not set: of the device with the highest peak that is not the CPU, or
  /// else of the CPU.
  std::optional<std::string> traced_device{};
  /// Where to look for the smallest device. Not set: device_catalogue().
  std::optional<std::vector<DeviceModel>> catalogue{};
};

/// Judges a trace file, wherever it was recorded. FormatError or IoError if it cannot be read,
/// UsageError for settings that torch refuses, for a device that the run did not use and for
/// assumptions below 0.
Verdict judge(const std::string& trace, const FitOptions& options = {});

}  // namespace tidegauge
