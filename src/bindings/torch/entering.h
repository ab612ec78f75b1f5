// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

namespace tidegauge::bindings {

/// Binds `__enter__` and `__exit__` for the classes whose contexts patch torch.
///
/// Ctrl-C can raise an exception between any two bytecodes of a Python function, even at its first
/// one, so a Python `__exit__` cannot promise to restore torch. These two are C++ functions. They
/// call the methods of the class as often as needed:
///
///   _set_depth(depth)      enters or exits the context until it is `depth` times entered; it can
///                          be repeated after an exception at any bytecode, and sets `_depth` last
///   _depth_after_exit()    the depth after one exit; raises if there was no entry
///
/// An interrupt while entering is raised after everything was undone, one while exiting after
/// everything was restored.
void bind_entering(pybind11::module_& m);

}  // namespace tidegauge::bindings
