// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/core/export.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/core/progress.h"
#include "core/events/device.h"
#include "export/memory_viz.h"
#include "export/perfetto.h"
#include "tidegauge/errors.h"
#include "trace/reader.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

/// Passes the pieces of a file to `write`. Takes the GIL for each piece, and lets Ctrl-C stop the
/// work.
Sink to_sink(const py::function& write) {
  return [&write](std::string_view piece) {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    write(py::bytes(piece.data(), piece.size()));
  };
}

template <typename Source>
struct FileSource {
  std::string path;
  Source source;
};

// (path, device, number, begin_ns, epoch_shift_ns)
FileSource<MemoryVizWriter::Source> to_memory_viz_source(const py::tuple& row) {
  return {row[0].cast<std::string>(),
          {parse_device(row[1].cast<std::string>()), row[2].cast<uint32_t>(),
           row[3].cast<int64_t>(), row[4].cast<int64_t>()}};
}

// (path, process, name, begin_ns)
FileSource<PerfettoWriter::Source> to_perfetto_source(const py::tuple& row) {
  return {row[0].cast<std::string>(),
          {row[1].cast<int64_t>(), row[2].cast<std::string>(), row[3].cast<int64_t>()}};
}

/// Adds all runs to `writer` and reports the progress of each.
template <typename Writer, typename Source>
void add_all(Writer& writer, const std::vector<FileSource<Source>>& files,
             const Progress& progress) {
  double done = 0;
  for (const FileSource<Source>& file : files) {
    Reader reader(file.path);
    const auto report_share = [&](double share) {
      progress((done + share) / static_cast<double>(files.size()));
    };
    try {
      writer.add(reader, file.source, report_share);
    } catch (const NotSupported& error) {
      throw NotSupported(file.path + ": " + error.what());
    }
    ++done;
  }
  writer.finish();
}

void write_memory_viz(const std::vector<py::tuple>& rows, const std::string& settings, bool is_json,
                      const py::function& write, const std::optional<py::function>& progress) {
  std::vector<FileSource<MemoryVizWriter::Source>> files;
  files.reserve(rows.size());
  for (const py::tuple& row : rows) files.push_back(to_memory_viz_source(row));
  const py::gil_scoped_release release;
  std::unique_ptr<ValueWriter> out;
  if (is_json) {
    out = std::make_unique<JsonWriter>(to_sink(write));
  } else {
    out = std::make_unique<PickleWriter>(to_sink(write));
  }
  MemoryVizWriter writer(*out, settings);
  add_all(writer, files, notify_python(progress));
}

void write_perfetto(const std::vector<py::tuple>& rows, const py::function& write,
                    const std::optional<py::function>& progress) {
  std::vector<FileSource<PerfettoWriter::Source>> files;
  files.reserve(rows.size());
  for (const py::tuple& row : rows) files.push_back(to_perfetto_source(row));
  const py::gil_scoped_release release;
  PerfettoWriter writer(to_sink(write));
  add_all(writer, files, notify_python(progress));
}

}  // namespace

void bind_export(py::module_& m) {
  m.def("write_memory_viz", &write_memory_viz, py::arg("sources"), py::arg("settings"),
        py::arg("is_json"), py::arg("write"), py::arg("progress") = py::none(),
        "Writes a snapshot for memory_viz from sources (path, device, number, begin_ns, "
        "epoch_shift_ns).");
  m.def("write_perfetto", &write_perfetto, py::arg("sources"), py::arg("write"),
        py::arg("progress") = py::none(),
        "Writes JSON for Perfetto from sources (path, process, name, begin_ns).");
}

}  // namespace tidegauge::bindings
