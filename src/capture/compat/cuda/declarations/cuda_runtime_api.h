// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// The parts of the CUDA runtime that c10/cuda/CUDACachingAllocator.h mentions, so that
/// libtidegauge_cuda compiles without NVIDIA's headers. Only the types matter, as pointers and
/// enums. The functions occur in torch's inline functions, which we do not call: no function is
/// linked, and its parameters are left open.
extern "C" {

enum cudaError_t { cudaSuccess = 0, cudaErrorNotReady = 600 };
enum cudaMemcpyKind : int;
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated,
};
enum { cudaUserObjectNoDestructorSync = 1, cudaGraphUserObjectMove = 1 };
using cudaStream_t = struct CUstream_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaUserObject_t = struct CUuserObject_st*;
using cudaHostFn_t = void (*)(void*);

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaDeviceGetStreamPriorityRange(...);
cudaError_t cudaGetLastError();
cudaError_t cudaGraphRetainUserObject(...);
cudaError_t cudaMemGetInfo(...);
cudaError_t cudaMemcpyAsync(...);
cudaError_t cudaStreamGetCaptureInfo(...);
cudaError_t cudaStreamGetCaptureInfo_v2(...);
cudaError_t cudaStreamGetPriority(...);
cudaError_t cudaStreamIsCapturing(...);
cudaError_t cudaStreamQuery(...);
cudaError_t cudaStreamSynchronize(...);
cudaError_t cudaThreadExchangeStreamCaptureMode(...);
cudaError_t cudaUserObjectCreate(...);
cudaError_t cudaUserObjectRelease(...);

}  // extern "C"
