// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>

#include "capture/compat/thread_local.h"

/// Torch's dispatch of an op to Python: `__torch_dispatch__` of tensors and modes.
namespace tidegauge::python_dispatch {

/// Torch's own dispatch.
void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Only where our key is above Python (dispatch_key.h): around an op that our handler passes on to
/// Python. Torch excludes all keys above Python in Python's handlers; ours stays on in this one.
class PassingOn {
 public:
  PassingOn() { is_passing_on() = true; }
  ~PassingOn() { is_passing_on() = false; }
  PassingOn(const PassingOn&) = delete;
  PassingOn& operator=(const PassingOn&) = delete;

  /// Python's handler asks once: ops that it calls are not passed on.
  static bool take() { return std::exchange(is_passing_on(), false); }

 private:
  static bool& is_passing_on() { return ThreadLocal<bool>::get(); }
};

/// Makes torch call `handler` instead. Call once per process; cannot be undone. Requires the GIL.
/// Does nothing in a program without Python.
using Handler = void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);
void install(Handler handler);

}  // namespace tidegauge::python_dispatch
