// SPDX-License-Identifier: BSD-3-Clause
// NVRTC: programs compile to nothing, and the driver loads nothing.
#include <cstddef>
#include <cstring>

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = STANDIN_CUDA_VERSION / 1000;
  *minor = STANDIN_CUDA_VERSION / 10 % 100;
  return 0;
}
const char* nvrtcGetErrorString(int error) {
  return error == 0 ? "NVRTC_SUCCESS" : "an error of the stand-in for NVRTC";
}
int nvrtcCreateProgram(void** program, ...) {
  *program = new char;
  return 0;
}
int nvrtcGetLoweredName(void*, const char* expression, const char** name) {
  *name = expression;
  return 0;
}
int nvrtcGetPTXSize(void*, size_t* size) {
  *size = 1;
  return 0;
}
int nvrtcGetCUBINSize(void*, size_t* size) {
  *size = 1;
  return 0;
}
int nvrtcGetProgramLogSize(void*, size_t* size) {
  *size = 1;
  return 0;
}
int nvrtcGetPTX(void*, char* text) {
  *text = '\0';
  return 0;
}
int nvrtcGetCUBIN(void*, char* text) {
  *text = '\0';
  return 0;
}
int nvrtcGetProgramLog(void*, char* text) {
  *text = '\0';
  return 0;
}

}  // extern "C"
