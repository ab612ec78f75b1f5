// SPDX-License-Identifier: BSD-3-Clause
// cuDNN: every graph has one engine. Which engine cuDNN would choose, and its workspace, is not
// public; the workspace is a setting.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "standin/state/settings.h"

namespace {

constexpr int kNotSupported = 3000;

/// Names and types of attributes, as in cudnn_backend.h.
enum Name : int {
  kConfigurationKnobs = 302,
  kConfigurationWorkspace = 303,
  kPlanWorkspace = 402,
  kPlanJson = 405,
  kEngineKnobs = 1302,
  kEngineNumericalNotes = 1303,
  kEngineBehaviorNotes = 1305,
};
enum Type : int {
  kBoolean = 2,
  kInt64 = 3,
  kDouble = 5,
  kPointer = 6,
  kDescriptor = 15,
};

struct Handle {
  void* stream = nullptr;
};

bool is_empty_list(int name) {
  return name == kConfigurationKnobs || name == kEngineKnobs || name == kEngineNumericalNotes ||
         name == kEngineBehaviorNotes || name == kPlanJson;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return STANDIN_CUDNN_VERSION; }
size_t cudnnGetCudartVersion() { return STANDIN_CUDA_VERSION; }
const char* cudnnGetErrorString(int error) {
  if (error == 0) return "CUDNN_STATUS_SUCCESS";
  return error == kNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED by the stand-in for CUDA"
                                : "an error of the stand-in for cuDNN";
}
void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "the stand-in for cuDNN does not support this call");
}
int cudnnGetProperty(int which, int* value) {
  constexpr int kMajor = STANDIN_CUDNN_VERSION / 10000;
  constexpr int kMinor = STANDIN_CUDNN_VERSION / 100 % 100;
  *value = which == 0 ? kMajor : which == 1 ? kMinor : STANDIN_CUDNN_VERSION % 100;
  return 0;
}
int cudnnCreate(Handle** handle) {
  *handle = new Handle;
  return 0;
}
int cudnnSetStream(Handle* handle, void* stream) {
  handle->stream = stream;
  return 0;
}
int cudnnGetStream(Handle* handle, void** stream) {
  *stream = handle->stream;
  return 0;
}

int cudnnBackendCreateDescriptor(int, void** descriptor) {
  *descriptor = new char;
  return 0;
}
int cudnnBackendDestroyDescriptor(char* descriptor) {
  delete descriptor;
  return 0;
}
int cudnnBackendGetAttribute(void*, int name, int type, int64_t wanted, int64_t* count,
                             void* values) {
  const int64_t given = is_empty_list(name) ? 0 : 1;
  if (count != nullptr) *count = given;
  if (values == nullptr || wanted < 1 || given == 0) return 0;
  if (name == kPlanWorkspace || name == kConfigurationWorkspace) {
    *static_cast<int64_t*>(values) =
        static_cast<int64_t>(tidegauge::standin::settings().cudnn_workspace_bytes);
  } else if (type == kInt64 || type == kDouble) {
    *static_cast<int64_t*>(values) = 0;
  } else if (type == kBoolean) {
    *static_cast<bool*>(values) = false;
  } else if (type != kDescriptor && type != kPointer) {
    *static_cast<int32_t*>(values) = 0;
  }
  return 0;
}

// Recurrent networks need the layout of cuDNN's weights, which is not public.
int cudnnSetRNNDescriptor_v8(void*, ...) { return kNotSupported; }
int cudnnDropoutGetStatesSize(void*, size_t* size_bytes) {
  *size_bytes = 0;
  return 0;
}

}  // extern "C"
