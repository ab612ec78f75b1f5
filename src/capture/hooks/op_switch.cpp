// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_switch.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <thread>

#include "capture/hooks/moment_facts.h"

namespace tidegauge::op_hook {

struct ThreadSwitch {
  ThreadSwitch() = default;
  ThreadSwitch(const ThreadSwitch&) = delete;
  ThreadSwitch& operator=(const ThreadSwitch&) = delete;
  ~ThreadSwitch() {
    if (has_started && starts == 0) --at_every_op.left_threads;
  }

  const std::thread::id thread = std::this_thread::get_id();
  std::atomic<int> starts{0};
  bool has_started = false;  // used by its own thread only
};

namespace {

/// While our key is included, ops on simulated tensors reach us through it, so the key that these
/// tensors carry is excluded.
void include(bool is_on) {
  c10::impl::tls_set_dispatch_key_included(dispatch_key::kOurs, is_on);
  c10::impl::tls_set_dispatch_key_excluded(dispatch_key::kCarried, is_on);
}

thread_local constinit int suspensions = 0;

constinit std::atomic<Runner> runner_in_use{nullptr};

const Thread& this_thread() {
  thread_local const Thread own = std::make_shared<ThreadSwitch>();
  return own;
}

}  // namespace

Thread switch_on_in_this_thread() {
  const Thread& own = this_thread();
  if (own->starts++ == 0 && own->has_started) --at_every_op.left_threads;
  own->has_started = true;
  if (at_every_op.op_starts++ == 0) moment::begin_session();
  restore_in_this_thread();
  return own;
}

void stop_in(const Thread& thread) {
  --at_every_op.op_starts;
  if (--thread->starts > 0) return;
  ++at_every_op.left_threads;
  if (thread->thread == std::this_thread::get_id()) include(false);
}

bool was_left_in_this_thread() {
  const Thread& own = this_thread();
  return own->has_started && own->starts == 0;
}

void switch_on_again() {
  if (suspensions == 0 && this_thread()->starts > 0) include(true);
}

void switch_off_in_this_thread() { include(false); }

bool is_on_in_this_thread() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_.has(dispatch_key::kOurs) && !keys.excluded_.has(dispatch_key::kOurs);
}

void suspend_in_this_thread() { ++suspensions; }
void resume_in_this_thread() {
  --suspensions;
  restore_in_this_thread();
}

void set_runner(Runner runner) { runner_in_use = runner; }
Runner current_runner() { return runner_in_use.load(std::memory_order_relaxed); }
void hold_runner() {
  at_every_op.runner_holders.fetch_add(1, std::memory_order_relaxed);
  at_every_op.detours.fetch_add(1, std::memory_order_relaxed);
}
void release_runner() {
  at_every_op.runner_holders.fetch_sub(1, std::memory_order_relaxed);
  at_every_op.detours.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace tidegauge::op_hook
