// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/claimed_cuda.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "capture/hooks/moment_facts.h"
#include "simulate/attention_choice.h"
#include "tidegauge/errors.h"

namespace tidegauge::claimed_cuda {
namespace {

constexpr int kMaxDevices = 16;
/// Size of the stream pool; torch also hands out its streams in rotation.
constexpr c10::StreamId kStreams = 64;

std::atomic<int> claimed_devices{0};
std::atomic<c10::StreamId> last_stream{0};

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMaxDevices> streams{};
};
thread_local constinit Current current{};

/// Makes the current stream the one that new allocations of this thread record.
void publish_stream() {
  moment::set_stream(StreamId(static_cast<uint16_t>(current.streams[current.device])));
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  if (device < 0 || device >= claimed_devices) return current.device;
  const c10::DeviceIndex old = std::exchange(current.device, device);
  publish_stream();
  return old;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return on(exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return on(current.device); }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    exchange_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream(device, current.streams[index_of(device)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream(device, 1 + last_stream++ % kStreams);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    auto& place = current.streams[index_of(next.device())];
    const c10::StreamId old = std::exchange(place, next.id());
    publish_stream();
    return stream(next.device(), old);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(claimed_devices.load());
  }

  // Nothing runs on a stream, so there is nothing to wait for.
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  bool isStreamCapturing(const c10::Stream&) const override { return false; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0; }

 private:
  static size_t index_of(c10::Device device) {
    return static_cast<size_t>(device.has_index() ? device.index() : current.device) % kMaxDevices;
  }
  static c10::Device on(c10::DeviceIndex index) { return {c10::kCUDA, index}; }
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    if (!device.has_index()) device.set_index(current.device);
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }
};

class Hooks final : public at::CUDAHooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(claimed_devices.load());
  }
  int getNumGPUs() const override { return claimed_devices; }
  c10::DeviceIndex getCurrentDevice() const override { return current.device; }
  c10::DeviceIndex current_device() const override { return current.device; }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  void deviceSynchronize(c10::DeviceIndex) const override {}
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
    return generator;
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
};

/// A torch build without CUDA keeps its CUDA hooks in an object that was constructed before we were
/// loaded and cannot be replaced. So we give that object the virtual table of our hooks.
void*& virtual_table(const at::CUDAHooksInterface& hooks) {
  return *reinterpret_cast<void**>(const_cast<at::CUDAHooksInterface*>(&hooks));
}

void* torchs_table = nullptr;

}  // namespace

void install(int device_count) {
  if (torchs_table != nullptr || c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    throw UsageError(
        "cannot simulate CUDA devices: this torch has CUDA itself, or simulates it already");
  }
  static const auto* guard = new Guard;
  static const auto* hooks = new Hooks;
  claimed_devices = std::min(device_count, kMaxDevices);
  current = {};
  last_stream = 0;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)] = guard;
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&simulation::choose_attention);
  torchs_table = std::exchange(virtual_table(at::detail::getCUDAHooks()), virtual_table(*hooks));
}

void uninstall() {
  if (torchs_table == nullptr) return;
  virtual_table(at::detail::getCUDAHooks()) = std::exchange(torchs_table, nullptr);
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(nullptr);
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)] = nullptr;
  claimed_devices = 0;
  current = {};
  moment::set_stream({});
}

}  // namespace tidegauge::claimed_cuda
