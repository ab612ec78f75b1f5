// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

namespace tidegauge {

/// The calling thread's T, for state that every op reads. A plain thread_local of a shared library
/// costs a function call per access; this one does not. T needs no constructor or destructor,
/// because storages are still freed while a thread ends.
///
/// In return, all thread_locals of libtidegauge must fit into the 1.6 KB that the loader reserves
/// for libraries that are loaded late. A test checks this limit.
template <typename T>
class ThreadLocal {
 public:
  static T& get() { return value_; }

 private:
  static_assert(std::is_trivially_destructible_v<T> && sizeof(T) <= 64);
  [[gnu::tls_model("initial-exec")]] inline static thread_local constinit T value_{};
};

}  // namespace tidegauge
