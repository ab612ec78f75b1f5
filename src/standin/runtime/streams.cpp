// SPDX-License-Identifier: BSD-3-Clause
// Streams and events of the CUDA runtime.
#include "standin/runtime/streams.h"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <vector>

#include "standin/runtime/cuda_types.h"
#include "standin/state/settings.h"

namespace tidegauge::standin {
namespace {

struct Event {
  Stream* stream = nullptr;
  uint64_t moment = 0;  // when it was recorded; 0: never
  uint64_t capture = 0;
  double time_ms = 0;
};

std::atomic<uint64_t> moment{1};
std::atomic<uint64_t> all_waited_for{0};

std::mutex captures_mutex;
std::vector<Stream*>& captured_streams() {
  static auto* streams = new std::vector<Stream*>;
  return *streams;
}

double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

bool is_done(const Event& event) {
  if (!settings().slow_events || event.moment == 0) return true;
  return event.moment <= all_waited_for || event.moment <= event.stream->waited_for;
}

int record(Event* event, void* stream) {
  event->stream = &find_stream(stream);
  event->moment = ++moment;
  event->capture = event->stream->capture;
  event->time_ms = now_ms();
  return kSuccess;
}

}  // namespace

Stream& find_stream(void* handle) {
  static auto* default_stream = new Stream;
  const bool is_special = reinterpret_cast<uintptr_t>(handle) <= 2;
  return is_special ? *default_stream : *static_cast<Stream*>(handle);
}

void join_capture(Stream& stream, uint64_t capture) {
  const std::lock_guard lock(captures_mutex);
  stream.capture = capture;
  captured_streams().push_back(&stream);
}

void end_capture(uint64_t capture) {
  const std::lock_guard lock(captures_mutex);
  std::erase_if(captured_streams(), [&](Stream* stream) {
    if (stream->capture != capture) return false;
    stream->capture = 0;
    return true;
  });
}

}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

int cudaDeviceSynchronize() {
  all_waited_for = moment.load();
  return kSuccess;
}
int cudaStreamCreateWithPriority(void** out, unsigned, int priority) {
  auto* stream = new Stream;
  stream->priority = std::clamp(priority, -5, 0);
  *out = stream;
  return kSuccess;
}
int cudaStreamCreateWithFlags(void** out, unsigned) {
  return cudaStreamCreateWithPriority(out, 0, 0);
}
int cudaStreamCreate(void** out) { return cudaStreamCreateWithPriority(out, 0, 0); }
int cudaStreamGetPriority(void* stream, int* priority) {
  *priority = find_stream(stream).priority;
  return kSuccess;
}
int cudaStreamSynchronize(void* stream) {
  find_stream(stream).waited_for = moment.load();
  return kSuccess;
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  const auto* waited = static_cast<Event*>(event);
  if (waited->capture != 0 && find_stream(stream).capture == 0 &&
      waited->stream->capture == waited->capture) {
    join_capture(find_stream(stream), waited->capture);
  }
  return kSuccess;
}
int cudaEventCreateWithFlags(void** out, unsigned) {
  *out = new Event;
  return kSuccess;
}
int cudaEventCreate(void** out) { return cudaEventCreateWithFlags(out, 0); }
int cudaEventDestroy(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}
int cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return record(static_cast<Event*>(event), stream);
}
int cudaEventRecord(void* event, void* stream) {
  return record(static_cast<Event*>(event), stream);
}
int cudaEventQuery(void* event) {
  return is_done(*static_cast<Event*>(event)) ? kSuccess : fail(kNotReady);
}
int cudaEventSynchronize(void* event) {
  const auto* waited = static_cast<Event*>(event);
  if (waited->stream != nullptr && waited->stream->waited_for < waited->moment) {
    waited->stream->waited_for = waited->moment;
  }
  return kSuccess;
}
/// At least 100 ms: programs that measure kernels (Triton's autotuner) repeat short ones many
/// times.
int cudaEventElapsedTime(float* milliseconds, void* from, void* to) {
  constexpr double kLeast = 100;
  const double passed = static_cast<Event*>(to)->time_ms - static_cast<Event*>(from)->time_ms;
  *milliseconds = static_cast<float>(std::max(passed, kLeast));
  return kSuccess;
}
/// Functions that the program puts between its kernels run at once.
int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) {
  function(data);
  return kSuccess;
}
int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*), void* data, unsigned) {
  function(stream, kSuccess, data);
  return kSuccess;
}

}  // extern "C"
