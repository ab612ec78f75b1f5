// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace tidegauge::standin {

/// A stream: everything on it is done at once. Never destroyed, because torch keeps handles.
struct Stream {
  int priority = 0;
  std::atomic<uint64_t> waited_for = 0;  // the last moment that the program waited for
  std::atomic<uint64_t> capture = 0;     // the CUDA graph that is captured; 0: none
};

/// The stream of a handle: null and 1 mean the default stream, 2 that of the thread.
Stream& find_stream(void* handle);
/// Ends the capture of a graph on all its streams.
void end_capture(uint64_t capture);
/// From now on the stream's work belongs to the graph.
void join_capture(Stream& stream, uint64_t capture);

}  // namespace tidegauge::standin
