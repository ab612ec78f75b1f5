// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/claimed_cuda.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "capture/compat/device_guard.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/op_stream.h"
#include "simulate/attention_choice.h"
#include "simulate/claimed_timers.h"
#include "simulate/fused_ops.h"
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

class Guard final : public DeviceGuard {
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

  // Nothing runs on a stream, so there is nothing to wait for. Op listeners note who would wait.
  // The handle of an event is its number.
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): only read by `block`, never dereferenced
    *event = reinterpret_cast<void*>(uintptr_t{op_stream::record_event(number_of(stream))});
  }
  void block(void* event, const c10::Stream& stream) const override {
    op_stream::await_event(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(event)),
                           number_of(stream));
  }
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
  static uint16_t number_of(const c10::Stream& stream) {
    return static_cast<uint16_t>(stream.id());
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

/// torch keeps its CUDA hooks in an object that was constructed before we were loaded and cannot be
/// replaced. So we give that object the virtual table of our hooks, which use no member.
void*& virtual_table(const at::CUDAHooksInterface& hooks) {
  return *reinterpret_cast<void**>(const_cast<at::CUDAHooksInterface*>(&hooks));
}

/// A stub has no function that reads its pointer. The pointer is a public member of its only
/// member.
void*& attention_choice() {
  auto& stub = at::native::_fused_sdp_choice_stub;
  static_assert(sizeof stub == sizeof(at::native::DispatchStubImpl));
  return reinterpret_cast<at::native::DispatchStubImpl&>(stub).cuda_dispatch_ptr;
}

/// at::Context::init_, which is private: it says of each kind of device whether it was initialised.
using InitFlags = std::array<c10::once_flag, at::COMPILE_TIME_MAX_DEVICE_TYPES>;
InitFlags& init_flags(at::Context& context);
template <InitFlags at::Context::* member>
struct PrivateMember {
  friend InitFlags& init_flags(at::Context& context) { return context.*member; }
};
template struct PrivateMember<&at::Context::init_>;  // here the name of a private member is allowed

c10::once_flag& init_flag() {
  return init_flags(at::globalContext())[static_cast<size_t>(c10::kCUDA)];
}

auto& guard_entry() {
  return c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)];
}

/// Never runs: an op on a simulated tensor reaches our handler first.
void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
  TORCH_CHECK(false, c10::toString(op.operator_name()), " has no kernel for a simulated device");
}

/// A torch with CUDA has kernels of its own for some ops that are made of others elsewhere, and
/// then autograd differentiates the op, not its parts. A torch without CUDA gets these kernels, so
/// that an estimate does not depend on the build.
std::unique_ptr<torch::Library> complete_kernels() {
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten",
                                                  c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const std::string_view name : simulation::list_fused_ops()) {
    const auto op = c10::Dispatcher::singleton().findOp({std::string(name), ""});
    if (op && !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) {
      library->impl(std::string(name).c_str(),
                    torch::CppFunction::makeFromBoxedFunction<&refuse>());
    }
  }
  return library;
}

/// The values that `install` replaced; restored at the end.
struct Before {
  void* hooks = nullptr;
  void* attention_choice = nullptr;
  const c10::impl::DeviceGuardImplInterface* guard = nullptr;
  bool is_initialised = false;
};
Before before;
std::unique_ptr<torch::Library> kernels;
bool is_installed = false;

}  // namespace

void install(int device_count, const simulation::ClaimedDevice& device) {
  if (is_installed) throw UsageError("cannot simulate CUDA devices: they are simulated already");
  static const auto* guard = new Guard;
  static const auto* hooks = new Hooks;
  claimed_devices = std::min(device_count, kMaxDevices);
  simulation::set_claimed_device(device);
  current = {};
  last_stream = 0;
  is_installed = true;
  kernels = complete_kernels();
  before.is_initialised = init_flag().test_once();
  before.guard = guard_entry().exchange(guard);
  before.attention_choice =
      std::exchange(attention_choice(), reinterpret_cast<void*>(&simulation::choose_attention));
  before.hooks = std::exchange(virtual_table(at::detail::getCUDAHooks()), virtual_table(*hooks));
  claimed_timers::install();
}

void uninstall() {
  if (!std::exchange(is_installed, false)) return;
  claimed_timers::uninstall();
  virtual_table(at::detail::getCUDAHooks()) = before.hooks;
  attention_choice() = before.attention_choice;
  guard_entry() = before.guard;
  kernels.reset();
  // torch may have marked CUDA as initialised meanwhile. Clear the mark, so that the first real use
  // initialises it.
  if (!before.is_initialised && init_flag().test_once()) {
    std::destroy_at(&init_flag());
    std::construct_at(&init_flag());
  }
  claimed_devices = 0;
  current = {};
  moment::set_stream({});
}

}  // namespace tidegauge::claimed_cuda
