// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

namespace tidegauge {

/// The calling thread's T, for state that every op reads. Access needs no call, which a plain
/// thread_local of a shared library costs each time. T has neither constructor nor destructor,
/// because frees still arrive while a thread ends.
///
/// The price: all thread_locals of libtidegauge, these and the plain ones, lie in the 1.6 KB that
/// the loader reserves for libraries that are loaded late. So they are small; a test checks the
/// limit.
template <typename T>
class ThreadLocal {
 public:
  static T& get() { return value_; }

 private:
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 64);
  [[gnu::tls_model("initial-exec")]] inline static thread_local constinit T value_{};
};

}  // namespace tidegauge
