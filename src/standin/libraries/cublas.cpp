// SPDX-License-Identifier: BSD-3-Clause
// cuBLAS: what torch reads from it. Products do nothing.
extern "C" {

/// Each handle has its own address: torch keeps one workspace per handle and stream.
int cublasCreate_v2(void** handle) {
  *handle = new char;
  return 0;
}
int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}
int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return 0;
}

}  // extern "C"
