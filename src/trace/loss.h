// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

namespace tidegauge::trace {

/// Why events are lost, and what helps.
struct Loss {
  std::string reason;
  std::string advice;
};

// Made when the library is loaded, because later no memory may be left for them.
// NOLINTBEGIN(bugprone-throwing-static-initialization)
inline const Loss kTooSlow{"events came faster than the disk could write them",
                           "record to a faster disk to have them all"};
inline const Loss kNoMemory{"no memory was left to record them",
                            "leave more memory to the process"};
// NOLINTEND(bugprone-throwing-static-initialization)

/// `is_replaced`: the file no longer has its path.
Loss explain_loss(const std::exception& error, bool is_replaced);

}  // namespace tidegauge::trace
