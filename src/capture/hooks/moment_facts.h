// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "capture/compat/at_every_op.h"
#include "capture/compat/thread_local.h"
#include "core/events/event.h"
#include "core/events/ids.h"
#include "tidegauge/export.h"

/// Facts about the present moment in the calling thread. Births carry them.
namespace tidegauge::moment {

/// Call when the first thread starts tracking. Recomputes, optimizer steps and modules that were
/// left open in an earlier session are forgotten.
void begin_session();

/// True if a backward runs in this thread.
TIDEGAUGE_API bool in_backward();

/// Call around a recompute: a checkpoint runs its forward again, in the running graph task.
/// `keeps_graph`: the checkpoint is reentrant, so the ops of its own backward are not part of the
/// recompute.
TIDEGAUGE_API void begin_recompute(bool keeps_graph);
TIDEGAUGE_API void end_recompute();
TIDEGAUGE_API bool in_recompute();

/// Optimizer steps nest (a closure may step another optimizer).
TIDEGAUGE_API void begin_optimizer_step();
TIDEGAUGE_API void end_optimizer_step();
/// Call around the closure that a step evaluates: what the closure does is not part of the step.
TIDEGAUGE_API void begin_closure();
TIDEGAUGE_API void end_closure();
TIDEGAUGE_API bool in_optimizer_step();

/// How many recomputes, optimizer steps, closures and modules are open in a thread. Every birth
/// reads it, so it needs no constructor.
struct alignas(32) Counts {
  uint64_t session = 0;
  int recomputes = 0;
  int optimizer_steps = 0;
  int closures = 0;  ///< of the optimizer steps, at most one each
  int open_modules = 0;
  StreamId stream{};
};
/// Clears the counts of an earlier session: its open steps and modules may never have been closed.
void reset_counts(Counts& counts, uint64_t session);
inline Counts& this_thread() {
  Counts& counts = ThreadLocal<Counts>::get();
  const uint64_t session = at_every_op.session.load(std::memory_order_relaxed);
  if (counts.session != session) [[unlikely]]
    reset_counts(counts, session);
  return counts;
}

/// Call around the forward of a module. If an optimizer step runs the model, even without a
/// closure, the storages are activations, not temporaries of the step.
inline void begin_module() { ++this_thread().open_modules; }
inline void end_module() {
  Counts& counts = this_thread();
  if (counts.open_modules > 0) --counts.open_modules;
}

/// The device stream that runs the ops of this thread; 0: the default stream, or none.
TIDEGAUGE_API void set_stream(StreamId stream);
inline StreamId stream() { return ThreadLocal<Counts>::get().stream; }

/// BirthFact bits (core/events/event.h). `task`: the graph task that runs in this thread; -1: none.
inline uint8_t birth_facts(int task) {
  const Counts& counts = this_thread();
  if (task == -1) {
    const bool in_step = counts.optimizer_steps > counts.closures && counts.open_modules == 0;
    return in_step ? kInOptimizerStep : 0;
  }
  return counts.recomputes > 0 && in_recompute() ? kInBackward | kInRecompute : kInBackward;
}

}  // namespace tidegauge::moment
