// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/fake_mode.h"

#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <atomic>

namespace tidegauge::fake_mode {
namespace {

constinit std::atomic<const void* (*)(const at::Tensor&)> find_mode{nullptr};

}  // namespace

const void* active() {
  const auto mode =
      c10::impl::TorchDispatchModeTLS::get_mode(c10::impl::TorchDispatchModeKey::FAKE);
  return mode ? (*mode)->ptr(c10::impl::getGlobalPyInterpreter()) : nullptr;
}

const void* mode_of(const at::Tensor& tensor) {
  const auto find = find_mode.load(std::memory_order_relaxed);
  return find != nullptr ? find(tensor) : nullptr;
}

void connect_python(const void* (*find)(const at::Tensor&)) { find_mode = find; }

}  // namespace tidegauge::fake_mode
