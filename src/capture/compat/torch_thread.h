// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "capture/compat/thread_local.h"

/// What torch keeps for the calling thread and is asked for in every op: found once.
namespace tidegauge::torch_thread {

struct Known {
  uint64_t id = 0;
  c10::impl::PODLocalDispatchKeySet* keys = nullptr;
};
[[gnu::noinline, gnu::cold]] inline Known& find(Known& known) {
  return known = {at::RecordFunction::currentThreadId(), &c10::impl::raw_local_dispatch_key_set};
}
inline Known& known() {
  Known& known = ThreadLocal<Known>::get();
  return known.keys != nullptr ? known : find(known);
}

/// Its number, as autograd's nodes have it; never 0.
inline uint64_t id() { return known().id; }
inline c10::impl::PODLocalDispatchKeySet& keys() { return *known().keys; }

/// Like c10::impl::ExcludeDispatchKeyGuard(Fake).
class WithoutFake {
 public:
  [[gnu::always_inline]] WithoutFake()
      : keys_(keys()), was_without_(keys_.excluded().has(c10::DispatchKey::Fake)) {
    keys_.set_excluded(keys_.excluded() | kFake);
  }
  [[gnu::always_inline]] ~WithoutFake() {
    if (!was_without_) keys_.set_excluded(keys_.excluded() - kFake);
  }
  WithoutFake(const WithoutFake&) = delete;
  WithoutFake& operator=(const WithoutFake&) = delete;

 private:
  static constexpr c10::DispatchKeySet kFake{c10::DispatchKey::Fake};

  c10::impl::PODLocalDispatchKeySet& keys_;
  const bool was_without_;
};

}  // namespace tidegauge::torch_thread
