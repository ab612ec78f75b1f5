// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "capture/modules/module_activity.h"

namespace tidegauge {

/// The steps of a module call, in the order that both front ends follow. Templates, because every
/// module call of a tracked program runs them.
///
///   begin_module_call   name the module if it has no name; enter it; notify; run the user's hook
///   end_module_call     run the user's hook; notify; leave the module
///
/// `notify_enter` or a hook of the user may throw. Then the steps that were done are undone, and
/// the exception goes on to the program; `notify_leave` is called only after a `notify_enter`.

template <typename Name, typename NotifyEnter, typename NotifyLeave, typename Hook>
ModuleActivity::Entered begin_module_call(ModuleActivity& activity, ModuleId id,
                                          at::TensorList inputs, Name&& name,
                                          NotifyEnter&& notify_enter, NotifyLeave&& notify_leave,
                                          Hook&& run_hook) {
  ModuleActivity::Entered entered = activity.enter(id, inputs);
  if (!entered.is_named) {
    name();
    entered = activity.enter(id, inputs);
  }
  bool is_notified = false;
  try {
    notify_enter(entered);
    is_notified = true;
    run_hook();
  } catch (...) {
    if (is_notified) notify_leave(entered);
    activity.leave(id, {});
    throw;
  }
  return entered;
}

template <typename NotifyLeave, typename Hook>
void end_module_call(ModuleActivity& activity, ModuleId id, at::TensorList outputs,
                     NotifyLeave&& notify_leave, Hook&& run_hook) {
  try {
    run_hook();
  } catch (...) {
    notify_leave();
    activity.leave(id, outputs);
    throw;
  }
  notify_leave();
  activity.leave(id, outputs);
}

}  // namespace tidegauge
