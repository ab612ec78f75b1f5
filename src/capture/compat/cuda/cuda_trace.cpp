// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/cuda/cuda_trace.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>

#include "capture/compat/cuda/standin_values.h"

namespace tidegauge {
namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using c10::cuda::CUDACachingAllocator::TraceEntry;

static_assert(static_cast<int>(TraceEntry::ALLOC) == static_cast<int>(TraceAction::Alloc));
static_assert(static_cast<int>(TraceEntry::OOM) == static_cast<int>(TraceAction::OutOfMemory));

constinit DeviceTraceReceiver receiver{};
constinit std::atomic<CUDAAllocator*>* torchs_allocator = nullptr;
constinit std::atomic<bool> is_attached{false};

/// Called with the lock of the device's allocator held. The StorageRegistry calls no allocator
/// while its own lock is held, so the two cannot wait for each other.
void record(const TraceEntry& entry) {
  if (entry.action_ == TraceEntry::ALLOC) standin_values::forget(entry.addr_, entry.size_);
  receiver.record({static_cast<TraceAction>(entry.action_),
                   cuda(static_cast<int8_t>(entry.device_)), entry.addr_,
                   static_cast<int64_t>(entry.size_), reinterpret_cast<uint64_t>(entry.stream_)});
}

/// Attaches to the allocators of all devices, if they exist. Only the first caller does so, and it
/// never waits for a caller that holds the lock of another device.
void attach_to_devices() {
  CUDAAllocator* allocator = torchs_allocator->load();
  // Other allocators, such as cudaMallocAsync, call no callback. Attaching to one fails, and the
  // failure is reported.
  const bool is_ready = allocator->initialized() || allocator->name() != "native";
  if (!is_ready || is_attached.exchange(true)) return;
  try {
    allocator->attachAllocatorTraceTracker(&record);
  } catch (const c10::Error& error) {
    receiver.fail(error.what_without_backtrace());
  } catch (const std::exception& error) {
    receiver.fail(error.what());
  }
}

class BeforeFirstSegment final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override {
    attach_to_devices();
    return false;  // nothing was freed
  }
};

/// A symbol of libc10_cuda by its mangled name; null if this torch does not have it.
template <typename T>
T* find(void* library, const char* name) {
  return reinterpret_cast<T*>(dlsym(library, name));
}

void attach(void* libc10_cuda) {
  // The class layouts in torch's headers are valid for one minor version.
  constexpr int kPatchBits = 48;
  if (aoti_torch_abi_version() >> kPatchBits != TORCH_ABI_VERSION >> kPatchBits) {
    return receiver.fail("libtidegauge_cuda was built for another version of torch");
  }
  using Registry = std::remove_pointer_t<decltype(c10::FreeCudaMemoryCallbacksRegistry())>;
  torchs_allocator = find<std::atomic<CUDAAllocator*>>(
      libc10_cuda, "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
  auto* callbacks =
      find<Registry*()>(libc10_cuda, "_ZN3c1031FreeCudaMemoryCallbacksRegistryB5cxx11Ev");
  if (torchs_allocator == nullptr || *torchs_allocator == nullptr || callbacks == nullptr) {
    return receiver.fail(
        "this torch has no CUDACachingAllocator::allocator or no registry of "
        "FreeMemoryCallback");
  }
  attach_to_devices();
  if (is_attached) return;
  callbacks()->Register(
      "tidegauge", [] { return std::unique_ptr<c10::FreeMemoryCallback>(new BeforeFirstSegment); });
  attach_to_devices();  // if CUDA was initialised meanwhile
}

}  // namespace
}  // namespace tidegauge

void tidegauge_attach_cuda(void* libc10_cuda, tidegauge::DeviceTraceReceiver receiver) {
  static std::once_flag once;
  std::call_once(once, [&] {
    tidegauge::receiver = receiver;
    tidegauge::attach(libc10_cuda);
  });
}
