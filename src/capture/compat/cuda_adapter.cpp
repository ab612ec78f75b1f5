// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/cuda_adapter.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>

namespace tidegauge::cuda_adapter {
namespace {

std::string path_of_adapter() {
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&attach), &own);
  const std::string path = own.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "libtidegauge_cuda.so";
}

void load(void* libc10_cuda, const DeviceTraceReceiver& receiver) {
  // The library stays loaded: torch keeps pointers into it.
  void* library = dlopen(path_of_adapter().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return receiver.fail(dlerror());
  const auto attach_cuda =
      reinterpret_cast<decltype(&tidegauge_attach_cuda)>(dlsym(library, "tidegauge_attach_cuda"));
  if (attach_cuda == nullptr) return receiver.fail(dlerror());
  attach_cuda(libc10_cuda, receiver);
}

}  // namespace

void attach(const DeviceTraceReceiver& receiver) {
  static constinit std::atomic<bool> is_done{false};
  static constinit std::mutex mutex;
  if (is_done.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex);
  if (is_done) return;
  void* libc10_cuda = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (libc10_cuda == nullptr) return;  // a program may load it later
  load(libc10_cuda, receiver);
  is_done.store(true, std::memory_order_release);
}

}  // namespace tidegauge::cuda_adapter
