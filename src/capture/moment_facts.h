// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "tidegauge/export.h"

/// What is true of this moment in the calling thread: the facts that births carry.
namespace tidegauge::moment {

/// Nobody tracked, and somebody begins: what was left open before is over.
void begin_session();

/// A checkpoint runs its forward again, in the running graph task. `keeps_graph`: a reentrant one,
/// whose recompute is over for the ops of the backward that it starts itself.
TIDEGAUGE_API void begin_recompute(bool keeps_graph);
TIDEGAUGE_API void end_recompute();
TIDEGAUGE_API bool in_recompute();

/// Optimizer steps nest (a closure may step another optimizer).
TIDEGAUGE_API void begin_optimizer_step();
TIDEGAUGE_API void end_optimizer_step();
TIDEGAUGE_API bool in_optimizer_step();

/// The forward of a module. A closure that runs the model inside an optimizer step makes
/// activations, not temporaries of the step.
TIDEGAUGE_API void begin_module();
TIDEGAUGE_API void end_module();

/// The stream of a device that the thread's ops go to; 0: the default one, or none.
TIDEGAUGE_API void set_stream(StreamId stream);
StreamId stream();

/// BirthFact bits (core/event.h). `task`: the one of autograd that runs in this thread, or -1.
uint8_t birth_facts(int task);

}  // namespace tidegauge::moment
