// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/modules/module_activity.h"

namespace tidegauge::bindings {

/// Notified of each call that a PyModTracker observes.
class PyModuleListener {
 public:
  virtual ~PyModuleListener() = default;
  /// Called when the module has become active. An exception (of a rule that the user has set)
  /// undoes the call and goes on to the caller.
  virtual void on_enter(pybind11::handle module, ModuleId id, bool is_root_call,
                        pybind11::handle args, pybind11::handle kwargs) = 0;
  /// Called while the module is still active. `output` is None if its forward raised. Does not
  /// throw.
  virtual void on_leave(ModuleId id, pybind11::handle output) = 0;
  /// Called when a compiled module is called. Calls below it are not reported. Does not throw.
  virtual void on_compiled(pybind11::handle module, pybind11::handle output) = 0;
  /// Called before a checkpoint runs its forward again. Does not throw.
  virtual void on_recompute() = 0;
  /// Called when the module is destroyed. Does not throw.
  virtual void on_death(ModuleId id) = 0;
};

/// The implementation of tidegauge.ModTracker for Python modules, bound as `_C.ModTracker`. All
/// calls need the GIL.
class PyModTracker {
 public:
  PyModTracker();
  ~PyModTracker();
  PyModTracker(const PyModTracker&) = delete;
  PyModTracker& operator=(const PyModTracker&) = delete;

  /// None removes a hook.
  void set_user_hooks(pybind11::object pre_fw, pybind11::object post_fw, pybind11::object pre_bw,
                      pybind11::object post_bw);

  /// Upstream warns if a module is called within itself. A script that did not ask for a tracker is
  /// not warned.
  bool warns_of_recursion = true;

  /// Pushes the module, then runs the user's pre_fw hook. If the hook or the warning raises, pops
  /// the module again.
  void enter_module(pybind11::handle module, pybind11::handle args, pybind11::handle kwargs);
  /// Runs the user's post_fw hook, then pops the module. Returns false if the module is not active
  /// in this thread.
  bool leave_module(pybind11::handle module, pybind11::handle args, pybind11::handle output);

  /// Returns the name of the module, which becomes a root if it has none.
  std::string name_module(pybind11::handle module);
  pybind11::object find_name(pybind11::handle module) const;
  std::vector<std::string> active_names();
  void run_within(pybind11::handle module, const pybind11::function& body);

  const std::shared_ptr<ModuleActivity>& activity() const { return activity_; }
  std::shared_ptr<PyModuleListener> listener() const { return listener_.lock(); }
  void set_listener(std::weak_ptr<PyModuleListener> listener) { listener_ = std::move(listener); }

  /// Lets Python's garbage collector visit the user's hooks, which often refer to their tracker.
  int traverse(visitproc visit, void* arg) const;

 private:
  struct UserHooks;

  void name_called_module(pybind11::handle module, ModuleId id);
  void notify_leave(ModuleId id, pybind11::handle output);

  std::shared_ptr<ModuleActivity> activity_;
  std::shared_ptr<UserHooks> hooks_;
  std::weak_ptr<PyModuleListener> listener_;
};

void bind_mod_tracker(pybind11::module_& m);

}  // namespace tidegauge::bindings
