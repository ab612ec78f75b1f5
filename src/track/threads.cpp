// SPDX-License-Identifier: BSD-3-Clause
#include "tidegauge/threads.h"

#include <vector>

#include "capture/hooks/op_hook.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

/// The attachments of the calling thread. They end with the thread.
struct Attachments {
  ~Attachments() {
    for (const op_hook::Thread& each : all) op_hook::stop_in(each);
  }
  std::vector<op_hook::Thread> all;
};
thread_local Attachments attachments;

}  // namespace

void attach_thread() { attachments.all.push_back(op_hook::start_in_this_thread()); }

void detach_thread() {
  if (attachments.all.empty()) {
    throw UsageError("this thread is not attached; call attach_thread in the same thread first");
  }
  op_hook::stop_in(attachments.all.back());
  attachments.all.pop_back();
  op_hook::restore_in_this_thread();
}

void watch_thread_again() { op_hook::restore_in_this_thread(); }

}  // namespace tidegauge
