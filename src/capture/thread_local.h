// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace tidegauge {

/// The one T of the calling thread, for what is looked at in every op. It needs neither
/// construction nor destruction: frees still come when a thread ends.
///
/// A plain thread_local of a library is found by a call, each time. Here only the first time: then
/// its address is kept where the thread finds it without one. The room for such, which all
/// libraries share, is small; a pointer always fits.
template <typename T>
class ThreadLocal {
 public:
  static T& get() {
    T* known = place_;
    return known != nullptr ? *known : find();
  }

 private:
  [[gnu::noinline, gnu::cold]] static T& find() {
    place_ = &value_;
    return value_;
  }

  inline static thread_local constinit T value_{};
  [[gnu::tls_model("initial-exec")]] inline static thread_local constinit T* place_ = nullptr;
};

}  // namespace tidegauge
