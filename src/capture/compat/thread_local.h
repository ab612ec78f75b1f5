// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

namespace tidegauge {

/// The one T of the calling thread, for what is looked at in every op: found without a call, which
/// a plain thread_local of a library costs each time. It needs neither construction nor
/// destruction, for frees still come when a thread ends.
///
/// The price: all thread_locals of libtidegauge, these and the plain ones, lie in the 1.6 KB that
/// the loader keeps for all libraries that come late. So they are small; a test has the limit.
template <typename T>
class ThreadLocal {
 public:
  static T& get() { return value_; }

 private:
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 64);
  [[gnu::tls_model("initial-exec")]] inline static thread_local constinit T value_{};
};

}  // namespace tidegauge
