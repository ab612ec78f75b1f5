// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/op_log.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/device_speed.h"
#include "plan/op_cost.h"
#include "plan/step_time.h"
#include "tidegauge/errors.h"
#include "track/op_log.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using TensorRow = std::tuple<std::vector<int64_t>, std::string, bool>;
using ValueRow = std::tuple<std::string, std::vector<TensorRow>, std::vector<int64_t>>;

std::vector<ValueRow> to_rows(const std::vector<OpValue>& values) {
  std::vector<ValueRow> rows;
  rows.reserve(values.size());
  for (const OpValue& value : values) {
    std::vector<TensorRow> tensors;
    tensors.reserve(value.tensors.size());
    for (const OpTensor& tensor : value.tensors) {
      tensors.emplace_back(tensor.sizes, tensor.dtype, tensor.is_on_cpu);
    }
    rows.emplace_back(value.name, std::move(tensors), value.integers);
  }
  return rows;
}

/// A call with its cost, which refers to it.
struct PricedCall {
  explicit PricedCall(OpCall from) : call(std::move(from)), cost(find_op_cost(call)) {}
  PricedCall(const PricedCall& other) : PricedCall(other.call) {}
  PricedCall& operator=(const PricedCall&) = delete;
  ~PricedCall() = default;

  const OpCall call;
  const OpCost cost;
};

std::vector<PricedCall> price_calls(const OpLog& log, int64_t begin) {
  std::vector<PricedCall> priced;
  for (OpCall& call : log.calls(begin)) priced.emplace_back(std::move(call));
  return priced;
}

using EntryRow = std::tuple<int, uint32_t, int, int>;

std::vector<EntryRow> list_entries(const OpLog& log, int64_t begin, int64_t end) {
  std::vector<EntryRow> rows;
  for (const OpEntry& entry : log.entries(begin, end)) {
    rows.emplace_back(static_cast<int>(entry.kind), entry.number, entry.facts, entry.stream);
  }
  return rows;
}

using Constants = std::map<std::string, double>;

/// Entries with what their ops cost, and the speed of a device.
struct Timed {
  Timed(const OpLog& log, int64_t begin, int64_t end, const std::string& device,
        const Constants& constants)
      : entries(log.entries(begin, end)) {
    const DeviceSpeed* known = find_speed(device);
    if (known == nullptr) {
      throw UsageError("the peaks of the device '" + device +
                       "' are not known; name a device of the catalogue that has them");
    }
    speed = *known;
    for (const auto& [name, value] : constants) speed.set(name, value);
    calls = log.calls(0);
    costs.reserve(calls.size());
    for (const OpCall& call : calls) costs.push_back(find_op_cost(call));
  }

  std::vector<OpEntry> entries;
  std::vector<OpCall> calls;  // costs refer to them
  std::vector<OpCost> costs;
  DeviceSpeed speed;
};

/// The entries from one position to another on a device of the catalogue.
py::dict time_entries(const OpLog& log, int64_t begin, int64_t end, const std::string& device,
                      const Constants& constants) {
  using py::literals::operator""_a;
  const Timed timed(log, begin, end, device, constants);
  const StepTime time = find_step_time(timed.entries, timed.costs, timed.speed);
  return py::dict("total_ns"_a = time.total_ns, "forward_ns"_a = time.forward_ns,
                  "backward_ns"_a = time.backward_ns, "recompute_ns"_a = time.recompute_ns,
                  "optimizer_ns"_a = time.optimizer_ns,
                  "communication_ns"_a = time.communication_ns, "exposed_ns"_a = time.exposed_ns,
                  "idle_ns"_a = time.idle_ns, "ideal_ns"_a = time.ideal_ns, "flops"_a = time.flops,
                  "recompute_flops"_a = time.recompute_flops);
}

using SliceRow = std::tuple<uint32_t, int, int, uint32_t, double, double>;

std::vector<SliceRow> list_slices(const OpLog& log, int64_t begin, int64_t end,
                                  const std::string& device, const Constants& constants) {
  const Timed timed(log, begin, end, device, constants);
  std::vector<OpSlice> slices;
  find_step_time(timed.entries, timed.costs, timed.speed, &slices);
  std::vector<SliceRow> rows;
  rows.reserve(slices.size());
  for (const OpSlice& slice : slices) {
    rows.emplace_back(slice.call, slice.stream, slice.facts, slice.module.value, slice.begin_ns,
                      slice.end_ns);
  }
  return rows;
}

}  // namespace

void bind_op_log(py::module_& m) {
  py::class_<PricedCall>(m, "PricedCall",
                         "All calls of an op with equal shapes, and what one costs.")
      .def_property_readonly("op", [](const PricedCall& self) { return self.call.op; })
      .def_property_readonly("arguments",
                             [](const PricedCall& self) { return to_rows(self.call.arguments); })
      .def_property_readonly("results",
                             [](const PricedCall& self) { return to_rows(self.call.results); })
      .def_property_readonly("is_view", [](const PricedCall& self) { return self.call.is_view; })
      .def_property_readonly(
          "kind", [](const PricedCall& self) { return std::string(to_string(self.cost.kind)); })
      .def_property_readonly("dtype",
                             [](const PricedCall& self) { return std::string(self.cost.dtype); })
      .def_property_readonly("flops", [](const PricedCall& self) { return self.cost.flops; })
      .def_property_readonly("masked_flops",
                             [](const PricedCall& self) { return self.cost.masked_flops; })
      .def_property_readonly("read_bytes",
                             [](const PricedCall& self) { return self.cost.read_bytes; })
      .def_property_readonly("written_bytes",
                             [](const PricedCall& self) { return self.cost.written_bytes; })
      .def_property_readonly("payload_bytes",
                             [](const PricedCall& self) { return self.cost.payload_bytes; })
      .def_property_readonly("group_size",
                             [](const PricedCall& self) { return self.cost.group_size; });
  py::class_<OpLog>(m, "OpLog", "The ops of a program in their order.")
      .def(py::init<>())
      .def("start", &OpLog::start)
      .def("stop", &OpLog::stop)
      .def_property_readonly("position", &OpLog::position)
      .def("entries", &list_entries, py::arg("begin"), py::arg("end"))
      .def("calls", &price_calls, py::arg("begin") = 0)
      .def("module_names", &OpLog::module_names)
      .def("time", &time_entries, py::arg("begin"), py::arg("end"), py::arg("device"),
           py::arg("constants") = Constants{})
      .def("slices", &list_slices, py::arg("begin"), py::arg("end"), py::arg("device"),
           py::arg("constants") = Constants{});
}

}  // namespace tidegauge::bindings
