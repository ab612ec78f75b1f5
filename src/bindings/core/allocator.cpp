// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/allocator.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/allocator_trace.h"
#include "allocator/plain_pickle.h"
#include "tidegauge/errors.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// A table of int64 from array.array('q'), stored row by row with this number of columns.
class Table {
 public:
  Table(const py::buffer& buffer, size_t columns) : info_(buffer.request()), columns_(columns) {
    if (info_.ndim != 1 || info_.itemsize != sizeof(int64_t) ||
        !info_.item_type_is_equivalent_to<int64_t>() || info_.strides[0] != sizeof(int64_t) ||
        static_cast<size_t>(info_.size) % columns != 0) {
      throw UsageError("expected an array of int64 with rows of " + std::to_string(columns));
    }
  }

  size_t rows() const { return static_cast<size_t>(info_.size) / columns_; }
  const int64_t* operator[](size_t row) const {
    return static_cast<const int64_t*>(info_.ptr) + row * columns_;
  }

 private:
  py::buffer_info info_;
  size_t columns_;
};

/// Reads an enumerator or another small number from a table.
template <typename Enum>
Enum checked(int64_t value, int64_t count) {
  if (value < 0 || value >= count) throw UsageError("invalid code " + std::to_string(value));
  return static_cast<Enum>(value);
}

// Columns: action, address, size, stream, pool (2).
std::vector<TraceEvent> read_events(const Table& table) {
  std::vector<TraceEvent> events;
  events.reserve(table.rows());
  for (size_t i = 0; i < table.rows(); ++i) {
    const int64_t* row = table[i];
    events.push_back({checked<TraceAction>(row[0], kTraceActionCount), row[1], row[2], row[3],
                      PoolId{row[4], row[5]}});
  }
  return events;
}

// Columns of segments: address, size, stream, pool (2), is_small, is_expandable, number of blocks.
// Columns of blocks, ordered by segment: address, size, requested, use.
Layout read_layout(const Table& segments, const Table& blocks) {
  Layout layout;
  size_t next = 0;
  for (size_t i = 0; i < segments.rows(); ++i) {
    const int64_t* row = segments[i];
    SegmentState segment{row[0],      row[1],      row[2], PoolId{row[3], row[4]},
                         row[5] != 0, row[6] != 0, {}};
    if (row[7] < 0 || row[7] > static_cast<int64_t>(blocks.rows() - next)) {
      throw UsageError("the segments have more blocks than the table of blocks has rows");
    }
    for (const size_t end = next + static_cast<size_t>(row[7]); next < end; ++next) {
      const int64_t* block = blocks[next];
      segment.blocks.push_back({block[0], block[1], block[2], checked<BlockUse>(block[3], 3)});
    }
    layout.push_back(std::move(segment));
  }
  return layout;
}

std::unique_ptr<AllocatorTrace> read_trace(const py::buffer& events, const py::buffer& segments,
                                           const py::buffer& blocks, const std::string& settings) {
  AllocConfig config = parse_alloc_config(settings);
  DeviceTrace trace{read_events(Table(events, 6)),
                    read_layout(Table(segments, 8), Table(blocks, 4))};
  const py::gil_scoped_release released;
  return std::make_unique<AllocatorTrace>(std::move(trace), std::move(config));
}

/// 0 stands for no limit.
int64_t to_limit(int64_t total_bytes) { return total_bytes > 0 ? total_bytes : kNoLimit; }

/// The figures, and the first difference from the recording: (event, description), or None.
py::tuple replay(const AllocatorTrace& trace, const std::string& tie, int64_t total_bytes) {
  const TieRule rule = parse_tie_rule(tie);
  ReplayResult result;
  {
    const py::gil_scoped_release released;
    result = trace.replay(rule, to_limit(total_bytes));
  }
  py::object divergence = py::none();
  if (result.divergence) {
    divergence = py::make_tuple(result.divergence->event, result.divergence->what);
  }
  return py::make_tuple(to_dict(result.figures), divergence);
}

py::dict replay_fresh(const AllocatorTrace& trace, const std::string& settings,
                      const std::string& tie, int64_t total_bytes, const std::string& deferred) {
  const ReplayOptions options{.config = parse_alloc_config(settings),
                              .tie = parse_tie_rule(tie),
                              .deferred = parse_deferred_frees(deferred),
                              .total_bytes = to_limit(total_bytes)};
  ReplayResult result;
  {
    const py::gil_scoped_release released;
    result = trace.replay_fresh(options);
  }
  return to_dict(result.figures);
}

}  // namespace

py::dict to_dict(const RunFigures& figures) {
  py::dict dict;
  dict["peak_reserved_bytes"] = figures.peak_reserved_bytes;
  dict["peak_active_bytes"] = figures.peak_active_bytes;
  dict["unused_at_peak_bytes"] = figures.unused_at_peak_bytes;
  dict["slack_at_peak_bytes"] = figures.slack_at_peak_bytes;
  dict["final_reserved_bytes"] = figures.final_reserved_bytes;
  dict["final_active_bytes"] = figures.final_active_bytes;
  dict["segments"] = figures.segments;
  dict["segment_events"] = figures.segment_events;
  dict["out_of_memory"] = figures.out_of_memory;
  return dict;
}

void bind_allocator(py::module_& m) {
  m.def(
      "find_pickle_fault",
      [](const py::bytes& data, bool may_have_defaultdicts) {
        return find_pickle_fault(
            data, may_have_defaultdicts ? PickledObjects::DefaultDicts : PickledObjects::None);
      },
      py::arg("data"), py::kw_only(), py::arg("may_have_defaultdicts") = false,
      "Why a pickle is not safe to open; None if it is.");
  py::class_<AllocatorTrace>(m, "AllocatorTrace")
      .def(py::init(&read_trace), py::arg("events"), py::arg("segments"), py::arg("blocks"),
           py::arg("settings"))
      .def("recorded", [](const AllocatorTrace& self) { return to_dict(self.recorded()); })
      .def("is_consistent", &AllocatorTrace::is_consistent)
      .def("replay", &replay, py::arg("tie"), py::arg("total_bytes"))
      .def("replay_fresh", &replay_fresh, py::arg("settings"), py::arg("tie"),
           py::arg("total_bytes"), py::arg("deferred"));
}

}  // namespace tidegauge::bindings
