// SPDX-License-Identifier: BSD-3-Clause
#include "trace/termination.h"

#include <semaphore.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "trace/recorder.h"

namespace tidegauge {
namespace {

sem_t terminated;
pid_t owner = 0;

void end_by_signal() {
  std::signal(SIGTERM, SIG_DFL);
  ::kill(::getpid(), SIGTERM);
}

extern "C" void note_sigterm(int) {
  const int error = errno;
  if (::getpid() == owner) {
    ::sem_post(&terminated);
  } else {
    end_by_signal();
  }
  errno = error;
}

}  // namespace

void complete_recordings_at_sigterm() {
  struct sigaction now{};
  if (::sigaction(SIGTERM, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  if (::sem_init(&terminated, 0, 0) != 0) return;
  owner = ::getpid();
  std::thread([] {
    while (::sem_wait(&terminated) != 0) {
    }
    Recorder::close_all("SIGTERM");
    end_by_signal();
  }).detach();
  struct sigaction ours{};
  ours.sa_handler = &note_sigterm;
  ours.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &ours, nullptr);
}

}  // namespace tidegauge
