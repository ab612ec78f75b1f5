// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "capture/compat/dispatch_key.h"
#include "capture/compat/thread_local.h"

/// State that torch keeps for the calling thread. Every op reads it, so its address is cached.
namespace tidegauge::torch_thread {

struct State {
  uint64_t id = 0;
  c10::impl::PODLocalDispatchKeySet* keys = nullptr;
};
[[gnu::noinline, gnu::cold]] inline State& find(State& state) {
  return state = {at::RecordFunction::currentThreadId(), &c10::impl::raw_local_dispatch_key_set};
}
inline State& state() {
  State& state = ThreadLocal<State>::get();
  return state.keys != nullptr ? state : find(state);
}

/// The thread id that autograd stores in nodes (Node::thread_id); never 0.
inline uint64_t id() { return state().id; }
inline c10::impl::PODLocalDispatchKeySet& keys() { return *state().keys; }

/// Excludes our key, like c10::impl::ExcludeDispatchKeyGuard.
class WithoutOurKey {
 public:
  [[gnu::always_inline]] WithoutOurKey()
      : keys_(keys()), was_excluded_(keys_.excluded().has(dispatch_key::kOurs)) {
    keys_.set_excluded(keys_.excluded() | dispatch_key::kOnlyOurs);
  }
  [[gnu::always_inline]] ~WithoutOurKey() {
    if (!was_excluded_) keys_.set_excluded(keys_.excluded() - dispatch_key::kOnlyOurs);
  }
  WithoutOurKey(const WithoutOurKey&) = delete;
  WithoutOurKey& operator=(const WithoutOurKey&) = delete;

 private:
  c10::impl::PODLocalDispatchKeySet& keys_;
  const bool was_excluded_;
};

}  // namespace tidegauge::torch_thread
