// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <string_view>

#include "core/util/failures.h"

namespace tidegauge::bindings {

/// Call in a `catch (...)`: notes the exception, and clears an error that Python has set. An
/// interrupt by the user is not lost: Python raises it at the next bytecode of the main thread.
void note_exception(Failures& failures, std::string_view where) noexcept;

/// Runs `body` for a hook. Objects of the program may raise anything when we read them; the
/// training must not see it. Returns false if `body` threw. Needs the GIL.
template <typename Body>
bool contain_python(Failures& failures, std::string_view where, Body&& body) noexcept {
  return contain(failures, where, body, &note_exception);
}

/// The text of a str object as UTF-8, with lone surrogates as \udcXX; "?" for other objects. Runs
/// no Python code.
std::string text_of(PyObject* text);

}  // namespace tidegauge::bindings
