// SPDX-License-Identifier: BSD-3-Clause
//
// The buckets in which DistributedDataParallel collects gradients. torch allocates them in C++.
#include "bindings/torch/ddp.h"

#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "bindings/torch/py_mem_tracker.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

std::vector<at::Tensor> find_buckets(py::handle reducer) {
  const auto& found = reducer.cast<const c10d::Reducer&>();
  // A comm hook in a backward may wait for the GIL while the reducer is locked.
  const py::gil_scoped_release no_gil;
  std::vector<at::Tensor> buckets;
  for (const c10d::GradBucket& bucket : found.get_grad_buckets(/*return_zero_tensors=*/false)) {
    if (bucket.getBuffer().defined()) buckets.push_back(bucket.getBuffer());  // not if sparse
  }
  return buckets;
}

}  // namespace

void bind_ddp(py::module_& m) {
  m.def(
      "gradient_buckets_made",
      [](py::handle reducer) {
        notify_started("the buckets of DistributedDataParallel", [&](PyMemTracker& tracker) {
          tracker.observer().label_buckets(find_buckets(reducer));
        });
      },
      py::arg("reducer"));
}

}  // namespace tidegauge::bindings
