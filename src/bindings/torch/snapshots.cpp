// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/snapshots.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "bindings/common/snapshots.h"

namespace py = pybind11;

namespace tidegauge::bindings {

py::object to_python(Device device) {
  py::module_::import("torch");  // the types of its objects
  return py::cast(c10::Device(static_cast<c10::DeviceType>(device.type), device.index));
}

py::dict to_python(const std::map<Device, int64_t>& bytes) {
  py::dict result;
  for (const auto& [device, count] : bytes) result[to_python(device)] = count;
  return result;
}

py::dict to_splits(const Snapshot& snapshot) {
  py::dict result;
  for (const DeviceSplit& entry : snapshot.devices) {
    result[to_python(entry.device)] = to_category_dict(entry.split);
  }
  return result;
}

}  // namespace tidegauge::bindings
