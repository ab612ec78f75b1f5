// SPDX-License-Identifier: BSD-3-Clause
#include "capture/compat/cuda/standin_values.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/fill_native.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace tidegauge::standin_values {
namespace {

/// Functions of src/standin/state/values.h.
struct Standin {
  void (*set_unknown)(const void* element, size_t size_bytes);
  void (*forget)(uint64_t address, size_t size_bytes);
  void (*write)(void* to, const void* from, size_t size_bytes);
};

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

const Standin* find_standin() {
  static const Standin standin = {
      find<void(const void*, size_t)>(RTLD_DEFAULT, "tidegauge_standin_set_unknown"),
      find<void(uint64_t, size_t)>(RTLD_DEFAULT, "tidegauge_standin_forget"),
      find<void(void*, const void*, size_t)>(RTLD_DEFAULT, "tidegauge_standin_write"),
  };
  return standin.write == nullptr ? nullptr : &standin;
}

constexpr int64_t kMaxFilled = 1024;
constexpr size_t kMaxElement = 16;
double unknown_number = 1.0;
// Kernels of libtorch_cuda, which we do not link.
at::Scalar (*torchs_item)(const at::Tensor&) = nullptr;
void (*torchs_copy_list)(at::TensorList, at::TensorList, bool) = nullptr;

/// `scalar` as an element of a tensor; empty for dtypes that have no numbers of their own.
struct Element {
  std::array<unsigned char, kMaxElement> bytes{};
  size_t size_bytes = 0;
};
Element to_element(const at::Scalar& scalar, at::ScalarType type) {
  Element element;
  if (c10::isQIntType(type) || c10::isBitsType(type)) return element;
  AT_DISPATCH_V2(type, "standin_values", AT_WRAP([&] {
                   const auto value = scalar.to<scalar_t>();
                   element.size_bytes = sizeof value;
                   std::memcpy(element.bytes.data(), &value, sizeof value);
                 }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kBool, at::kHalf, at::kBFloat16);
  return element;
}

bool has_numbers(at::ScalarType type) {
  return type == at::kBool || type == at::kHalf || type == at::kBFloat16 ||
         c10::isIntegralType(type, false) || type == at::kFloat || type == at::kDouble ||
         type == at::kComplexFloat || type == at::kComplexDouble;
}

/// While it lives, unknown elements that this thread reads are of this dtype.
class ReadScope {
 public:
  explicit ReadScope(at::ScalarType type) {
    if (!c10::isFloatingType(type) || !has_numbers(type)) return;
    const Element element = to_element(unknown_number, type);
    find_standin()->set_unknown(element.bytes.data(), element.size_bytes);
  }
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;
  ~ReadScope() { find_standin()->set_unknown(nullptr, 0); }
};

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (!self.is_cpu() || !source.is_cuda()) return at::native::copy_(self, source, non_blocking);
  const ReadScope scope(self.scalar_type());
  return at::native::copy_(self, source, non_blocking);
}

at::Scalar read_item(const at::Tensor& self) {
  const ReadScope scope(self.scalar_type());
  return torchs_item(self);
}

at::Tensor& fill(at::Tensor& self, const at::Scalar& value) {
  at::native::fill_(self, value);
  if (self.numel() == 0 || self.numel() > kMaxFilled || !has_numbers(self.scalar_type()) ||
      !self.is_non_overlapping_and_dense()) {
    return self;
  }
  const Element element = to_element(value, self.scalar_type());
  std::vector<unsigned char> bytes;
  bytes.reserve(static_cast<size_t>(self.numel()) * element.size_bytes);
  for (int64_t index = 0; index < self.numel(); ++index) {
    bytes.insert(bytes.end(), element.bytes.begin(), element.bytes.begin() + element.size_bytes);
  }
  find_standin()->write(self.mutable_data_ptr(), bytes.data(), bytes.size());
  return self;
}

/// DDP and object collectives read what such copies bring, so small ones are made one by one.
void copy_list(at::TensorList self, at::TensorList source, bool non_blocking) {
  const bool is_small = std::all_of(self.begin(), self.end(), [](const at::Tensor& tensor) {
    return tensor.numel() <= kMaxFilled;
  });
  if (is_small) {
    at::native::foreach_tensor_copy_list_kernel_slow_(self, source, non_blocking);
  } else {
    torchs_copy_list(self, source, non_blocking);
  }
}

/// torch warns about replaced kernels, which is what we do.
class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

void forget(uint64_t address, size_t size_bytes) {
  if (const Standin* standin = find_standin()) {
    standin->forget(address, size_bytes);
  }
}

}  // namespace tidegauge::standin_values

bool tidegauge_answer_standin_values(double number) {
  using namespace tidegauge::standin_values;
  void* torch_cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (find_standin() == nullptr || torch_cuda == nullptr) return false;
  torchs_item = find<at::Scalar(const at::Tensor&)>(
      torch_cuda, "_ZN2at6native24_local_scalar_dense_cudaERKNS_6TensorE");
  torchs_copy_list = find<void(at::TensorList, at::TensorList, bool)>(
      torch_cuda,
      "_ZN2at6native37foreach_tensor_copy_list_kernel_cuda_EN3c108ArrayRefINS_6TensorEEES4_b");
  unknown_number = number;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  // Never destroyed: it would restore torch's kernels at the end of the process.
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  static const bool once = [] {
    library->impl("copy_", TORCH_FN(copy));
    library->impl("fill_.Scalar", TORCH_FN(fill));
    if (torchs_item != nullptr) library->impl("_local_scalar_dense", TORCH_FN(read_item));
    if (torchs_copy_list != nullptr) library->impl("_foreach_copy_", TORCH_FN(copy_list));
    return true;
  }();
  return once;
}
