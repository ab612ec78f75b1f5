// SPDX-License-Identifier: BSD-3-Clause
#include "bindings/torch/python_stack.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/torch/containment.h"
#include "capture/modules/birth_stacks.h"

namespace py = pybind11;

namespace tidegauge::bindings {
namespace {

struct Frame {
  PyCodeObject* code;
  int instruction;
  friend bool operator==(const Frame&, const Frame&) = default;
};
using Frames = std::vector<Frame>;

struct FramesHash {
  size_t operator()(const Frames& frames) const {
    uint64_t hash = 0;
    for (const auto& [code, instruction] : frames) {
      hash = (hash ^ reinterpret_cast<uintptr_t>(code) ^ static_cast<uint64_t>(instruction)) *
             0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

/// The stacks that were read before, which need no lookup of names and lines. Their code objects
/// are kept alive, so that an address always means the same code. Guarded by the GIL.
struct StackCache {
  std::unordered_map<Frames, StackId, FramesHash> stacks;
  std::vector<std::string> hidden_folders;
};
StackCache& cache() {
  static auto* all = new StackCache;
  return *all;
}

bool is_hidden(const std::string& file) {
  const auto& folders = cache().hidden_folders;
  return file.starts_with("<frozen ") ||
         std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return file.starts_with(folder); });
}

std::string render(const Frames& frames) {
  std::string text;
  for (const auto& [code, instruction] : frames) {
    const std::string file = text_of(code->co_filename);
    if (is_hidden(file)) continue;
    if (!text.empty()) text += '\n';
    text += file + ":" + std::to_string(PyCode_Addr2Line(code, instruction)) + " " +
            text_of(code->co_qualname);
  }
  return text;
}

/// Releases the references to frames and code immediately. The running functions keep both alive.
Frames read_frames() {
  Frames frames;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    if (frames.size() < kMaxStackFrames) {
      PyCodeObject* code = PyFrame_GetCode(frame);
      frames.push_back({code, PyFrame_GetLasti(frame)});
      Py_DECREF(code);
    }
    PyFrameObject* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  return frames;
}

/// Takes the GIL, because ops run without it.
StackId collect() {
  if (PyGILState_GetThisThreadState() == nullptr) return {};  // an autograd thread of a device
  const py::gil_scoped_acquire gil;
  const py::error_scope error;  // keeps an error that the program may have set
  Frames frames = read_frames();
  if (frames.empty()) return {};
  auto& stacks = cache().stacks;
  if (const auto found = stacks.find(frames); found != stacks.end()) return found->second;
  if (stacks.size() == kMaxStacks) return {};
  const std::string text = render(frames);
  const StackId id = text.empty() ? StackId() : intern_stack(text);
  for (const Frame& frame : frames) Py_INCREF(frame.code);
  stacks.emplace(std::move(frames), id);
  return id;
}

}  // namespace

std::string user_line() {
  if (PyGILState_GetThisThreadState() == nullptr) return {};
  const py::gil_scoped_acquire gil;
  const py::error_scope error;
  for (const auto& [code, instruction] : read_frames()) {
    const std::string file = text_of(code->co_filename);
    if (!is_hidden(file)) return file + ":" + std::to_string(PyCode_Addr2Line(code, instruction));
  }
  return {};
}

void bind_python_stack(py::module_& m) {
  python_stacks::set_collector(&collect);
  m.def(
      "hide_frames_below",
      [](const std::vector<std::string>& folders) {
        auto& hidden = cache().hidden_folders;
        hidden.insert(hidden.end(), folders.begin(), folders.end());
      },
      py::arg("folders"));
}

}  // namespace tidegauge::bindings
