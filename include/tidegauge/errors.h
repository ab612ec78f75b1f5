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

/// The caller asked for something that makes no sense (Python: ValueError).
class TIDEGAUGE_API UsageError : public Error {
 public:
  using Error::Error;
};

/// A file is foreign, holds what cannot be, is cut short or newer than this version reads (Python:
/// ValueError).
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

/// A bug of ours (Python: RuntimeError).
class TIDEGAUGE_API InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace tidegauge
