// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "capture/compat/at_every_op.h"
#include "capture/compat/thread_local.h"
#include "core/events/event.h"
#include "core/events/ids.h"
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

/// What the thread is in, looked at in every birth: so it needs no construction.
struct alignas(32) Counts {
  uint64_t session = 0;
  int recomputes = 0;
  int optimizer_steps = 0;
  int open_modules = 0;
  StreamId stream{};
};
/// Who left within a step or a module was not told of its end.
void begin_anew(Counts& counts, uint64_t session);
inline Counts& this_thread() {
  Counts& counts = ThreadLocal<Counts>::get();
  const uint64_t session = at_every_op.session.load(std::memory_order_relaxed);
  if (counts.session != session) [[unlikely]]
    begin_anew(counts, session);
  return counts;
}

/// The forward of a module. A closure that runs the model inside an optimizer step makes
/// activations, not temporaries of the step.
inline void begin_module() { ++this_thread().open_modules; }
inline void end_module() {
  Counts& counts = this_thread();
  if (counts.open_modules > 0) --counts.open_modules;
}

/// The stream of a device that the thread's ops go to; 0: the default one, or none.
TIDEGAUGE_API void set_stream(StreamId stream);
inline StreamId stream() { return ThreadLocal<Counts>::get().stream; }

/// BirthFact bits (core/events/event.h). `task`: the one of autograd that runs in this thread, or
/// -1.
inline uint8_t birth_facts(int task) {
  const Counts& counts = this_thread();
  if (task == -1) {
    return counts.optimizer_steps > 0 && counts.open_modules == 0 ? kInOptimizerStep : 0;
  }
  return counts.recomputes > 0 && in_recompute() ? kInBackward | kInRecompute : kInBackward;
}

}  // namespace tidegauge::moment
