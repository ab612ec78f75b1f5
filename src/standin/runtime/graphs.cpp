// SPDX-License-Identifier: BSD-3-Clause
// CUDA graphs: only whether a stream is captured matters, since torch's allocator asks.
#include <cstddef>
#include <utility>

#include "standin/runtime/cuda_types.h"
#include "standin/runtime/streams.h"

namespace tidegauge::standin {
namespace {

std::atomic<uint64_t> captures{0};
int any_graph;  // an address

int read_capture(void* stream, int* status, uint64_t* id, void** graph) {
  const uint64_t capture = find_stream(stream).capture;
  *status = capture == 0 ? 0 : 1;
  if (id != nullptr) *id = capture;
  if (graph != nullptr) *graph = capture == 0 ? nullptr : &any_graph;
  return kSuccess;
}

int begin_capture(void* stream) {
  join_capture(find_stream(stream), ++captures);
  return kSuccess;
}

}  // namespace
}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

int cudaStreamBeginCapture(void* stream, int) { return begin_capture(stream); }
int cudaStreamBeginCaptureToGraph(void* stream, void*, const void*, const void*, size_t, int) {
  return begin_capture(stream);
}
int cudaStreamEndCapture(void* stream, void** graph) {
  const uint64_t capture = find_stream(stream).capture;
  if (capture != 0) end_capture(capture);
  *graph = &any_graph;
  return kSuccess;
}
int cudaStreamIsCapturing(void* stream, int* status) {
  return read_capture(stream, status, nullptr, nullptr);
}
int cudaStreamGetCaptureInfo(void* stream, int* status, uint64_t* id, void** graph,
                             const void** dependencies, const void** edges, size_t* count) {
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return read_capture(stream, status, id, graph);
}
/// The function of CUDA 12, which has no edges.
int cudaStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph,
                                const void** dependencies, size_t* count) {
  return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, nullptr, count);
}
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int mode_of_thread = 0;
  *mode = std::exchange(mode_of_thread, *mode);
  return kSuccess;
}
int cudaGraphCreate(void** graph, unsigned) {
  *graph = &any_graph;
  return kSuccess;
}
int cudaGraphAddNode(void** node, ...) {
  *node = &any_graph;
  return kSuccess;
}
/// Reports one node, because torch warns about empty graphs.
int cudaGraphGetNodes(void*, void** nodes, size_t* count) {
  if (nodes != nullptr && *count > 0) nodes[0] = &any_graph;
  *count = 1;
  return kSuccess;
}
int cudaGraphNodeGetDependencies(void*, void**, void*, size_t* count) {
  *count = 0;
  return kSuccess;
}
int cudaGraphInstantiate(void** executable, ...) {
  *executable = &any_graph;
  return kSuccess;
}
int cudaGraphInstantiateWithFlags(void** executable, void*, uint64_t) {
  *executable = &any_graph;
  return kSuccess;
}
int cudaGraphConditionalHandleCreate(uint64_t* handle, void*, unsigned, unsigned) {
  *handle = 1;
  return kSuccess;
}
/// Never calls `destroy`, because the graph may be launched until the process ends.
int cudaUserObjectCreate(void** object, void*, void (*)(void*), unsigned, unsigned) {
  *object = &any_graph;
  return kSuccess;
}

}  // extern "C"
