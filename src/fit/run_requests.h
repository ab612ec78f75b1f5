// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "fit/replays.h"

namespace tidegauge {

/// The requests of a run to one device, and their simulations with each tie rule. Not thread-safe.
class RunRequests {
 public:
  explicit RunRequests(std::shared_ptr<const RequestStream> stream) : stream_(std::move(stream)) {}

  const RequestStream& stream() const { return *stream_; }
  Replays& replays(TieRule tie) { return replays_.try_emplace(tie, *stream_, tie).first->second; }

 private:
  std::shared_ptr<const RequestStream> stream_;
  std::map<TieRule, Replays> replays_;
};

}  // namespace tidegauge
