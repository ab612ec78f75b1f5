// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/plan.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/device_speed.h"
#include "tidegauge/plan.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

using ChoiceRow = std::tuple<int64_t, int64_t, int64_t>;  // in the order of BlockChoice
using PlanRow = std::tuple<std::vector<int32_t>, int64_t, int64_t>;

PlanProblem make_problem(const std::vector<std::vector<ChoiceRow>>& blocks, int64_t tail_bytes,
                         int64_t floor_bytes, const std::vector<int32_t>& classes) {
  PlanProblem problem;
  for (const auto& rows : blocks) {
    auto& choices = problem.blocks.emplace_back();
    for (const ChoiceRow& row : rows) choices.push_back(std::make_from_tuple<BlockChoice>(row));
  }
  problem.tail_bytes = tail_bytes;
  problem.floor_bytes = floor_bytes;
  problem.classes = classes;
  return problem;
}

PlanRow to_row(const BlockPlan& plan) { return {plan.choices, plan.peak_bytes, plan.time_ns}; }

}  // namespace

void bind_plan(py::module_& m) {
  py::class_<PlanProblem>(m, "PlanProblem", "Choices of blocks, and what they cost.")
      .def(py::init(&make_problem), py::arg("blocks"), py::arg("tail_bytes"),
           py::arg("floor_bytes"), py::arg("classes"))
      .def("evaluate",
           [](const PlanProblem& self, const std::vector<int32_t>& choices) {
             return to_row(evaluate_plan(self, choices));
           })
      .def(
          "find_plans",
          [](const PlanProblem& self, size_t most_points) {
            PlanFront front;
            {
              const py::gil_scoped_release released;
              front = find_plans(self, most_points);
            }
            std::vector<PlanRow> rows;
            rows.reserve(front.plans.size());
            for (const BlockPlan& plan : front.plans) rows.push_back(to_row(plan));
            return py::make_tuple(rows, front.gap_ns);
          },
          py::arg("most_points") = 20000)
      .def(
          "make_regular",
          [](const PlanProblem& self, const std::vector<int32_t>& choices, int64_t budget_bytes) {
            return to_row(make_regular(self, evaluate_plan(self, choices), budget_bytes));
          },
          py::arg("choices"), py::arg("budget_bytes"));
  m.def(
      "knows_speed", [](const std::string& device) { return find_speed(device) != nullptr; },
      py::arg("device"), "True if the peaks of this device of the catalogue are known.");
  m.def(
      "speed_constants",
      [](const std::string& device) {
        const DeviceSpeed* speed = find_speed(device);
        std::map<std::string, double> all;
        if (speed == nullptr) return all;
        for (const auto& [name, value] : speed->constants()) all.emplace(name, value);
        return all;
      },
      py::arg("device"), "Members of DeviceSpeed by name; empty if they are not known.");
  m.def(
      "speed_source",
      [](const std::string& device) { return std::string(find_speed_source(device)); },
      py::arg("device"), "Where the peaks of this device are from; empty if they are not known.");
}

}  // namespace tidegauge::bindings
