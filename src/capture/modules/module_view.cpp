// SPDX-License-Identifier: BSD-3-Clause
#include "capture/modules/module_view.h"

namespace tidegauge {

ModuleView::~ModuleView() = default;
ModuleSource::~ModuleSource() = default;

}  // namespace tidegauge
