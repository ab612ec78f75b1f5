// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "fit/replays.h"

namespace tidegauge::bindings {

/// The requests of a run, for Python, with a cache of their simulations.
class Requests {
 public:
  explicit Requests(std::shared_ptr<const RequestStream> stream) : stream_(std::move(stream)) {}

  const RequestStream& stream() const { return *stream_; }
  Replays& replays(TieRule tie) { return replays_.try_emplace(tie, *stream_, tie).first->second; }

 private:
  std::shared_ptr<const RequestStream> stream_;
  std::map<TieRule, Replays> replays_;
};

/// Binds RequestStream, verdicts, assumptions and the device catalogue.
void bind_fit(pybind11::module_& m);

}  // namespace tidegauge::bindings
