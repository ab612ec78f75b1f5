// SPDX-License-Identifier: BSD-3-Clause
// cuBLASLt: one algorithm for every product.
#include <cstddef>
#include <cstring>

namespace {

/// cublasLtMatmulHeuristicResult_t.
struct HeuristicResult {
  char algorithm[64];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
char any_object[64];

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return STANDIN_CUDA_VERSION * 10; }
int cublasLtMatmulDescCreate(void** out, ...) {
  *out = any_object;
  return 0;
}
int cublasLtMatmulPreferenceCreate(void** out) {
  *out = any_object;
  return 0;
}
int cublasLtMatrixLayoutCreate(void** out, ...) {
  *out = any_object;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int,
                                   HeuristicResult* results, int* count) {
  std::memset(results, 0, sizeof *results);
  *count = 1;
  return 0;
}
int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void*,
                            HeuristicResult* result) {
  std::memset(result, 0, sizeof *result);
  return 0;
}
int cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void* value, size_t size_bytes,
                                         size_t* written_bytes) {
  std::memset(value, 0, size_bytes);
  if (written_bytes != nullptr) *written_bytes = size_bytes;
  return 0;
}

}  // extern "C"
