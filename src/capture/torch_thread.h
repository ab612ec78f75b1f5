// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "capture/thread_local.h"

/// What torch keeps for the calling thread and is asked for in every op: found once.
namespace tidegauge::torch_thread {

struct Id {
  uint64_t value = 0;
};
/// Its number, as autograd's nodes have it; never 0.
inline uint64_t id() {
  Id& known = ThreadLocal<Id>::get();
  if (known.value == 0) known.value = at::RecordFunction::currentThreadId();
  return known.value;
}

struct Keys {
  c10::impl::PODLocalDispatchKeySet* place = nullptr;
};
[[gnu::noinline, gnu::cold]] inline c10::impl::PODLocalDispatchKeySet& find(Keys& known) {
  return *(known.place = &c10::impl::raw_local_dispatch_key_set);
}
inline c10::impl::PODLocalDispatchKeySet& keys() {
  Keys& known = ThreadLocal<Keys>::get();
  return known.place != nullptr ? *known.place : find(known);
}

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
