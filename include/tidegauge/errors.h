// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>

#include "tidegauge/export.h"

namespace tidegauge {

/// Base of all errors that tidegauge throws. A message says what happened with the value, what
/// was expected and what to do.
class TIDEGAUGE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed an invalid argument or called a function at the wrong time (Python:
/// ValueError).
class TIDEGAUGE_API UsageError : public Error {
 public:
  using Error::Error;
};

/// A file has another format, is damaged or truncated, or is newer than this version can read
/// (Python: ValueError).
class TIDEGAUGE_API FormatError : public Error {
 public:
  using Error::Error;
};

/// A file cannot be read or written (Python: OSError).
class TIDEGAUGE_API IoError : public Error {
 public:
  using Error::Error;
};

/// Not available in this build or with this version of torch (Python: NotImplementedError).
class TIDEGAUGE_API NotSupported : public Error {
 public:
  using Error::Error;
};

/// A bug in tidegauge (Python: RuntimeError).
class TIDEGAUGE_API InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace tidegauge
