// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/modules/module_activity.h"
#include "capture/modules/module_view.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// Names a module that is being called: by its path below a running module, or as a root if none of
/// the last 256 running modules contains it. The limit keeps the time linear if thousands of
/// modules that no other one registers call each other.
TIDEGAUGE_API void name_called(ModuleActivity& activity, const ModuleSource& source,
                               const ModuleView& module, ModuleId id);

/// Names a module as a root, and all modules below it. No effect if it has a name.
TIDEGAUGE_API void name_root(ModuleActivity& activity, const ModuleView& module, ModuleId id);

/// Names all modules below a module that has a name.
TIDEGAUGE_API void name_children(ModuleActivity& activity, const ModuleView& module, ModuleId id);

}  // namespace tidegauge
