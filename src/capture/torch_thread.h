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
inline c10::impl::PODLocalDispatchKeySet& keys() {
  Keys& known = ThreadLocal<Keys>::get();
  if (known.place == nullptr) known.place = &c10::impl::raw_local_dispatch_key_set;
  return *known.place;
}

/// Like c10::impl::ExcludeDispatchKeyGuard.
class WithoutKey {
 public:
  explicit WithoutKey(c10::DispatchKey key)
      : keys_(keys()), added_(c10::DispatchKeySet(key) - keys_.excluded()) {
    keys_.set_excluded(keys_.excluded() | added_);
  }
  ~WithoutKey() { keys_.set_excluded(keys_.excluded() - added_); }
  WithoutKey(const WithoutKey&) = delete;
  WithoutKey& operator=(const WithoutKey&) = delete;

 private:
  c10::impl::PODLocalDispatchKeySet& keys_;
  const c10::DispatchKeySet added_;
};

}  // namespace tidegauge::torch_thread
