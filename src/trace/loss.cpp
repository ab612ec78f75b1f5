// SPDX-License-Identifier: BSD-3-Clause
#include "trace/loss.h"

#include <new>

#include "trace/database.h"

namespace tidegauge::trace {

Loss explain_loss(const std::exception& error, bool is_replaced) {
  if (is_replaced) {
    return {"the file was deleted or replaced, perhaps by another process that records to it",
            "give each process a file of its own"};
  }
  const auto* sql = dynamic_cast<const SqlError*>(&error);
  const int code = sql != nullptr ? sql->code : 0;
  if (code == SQLITE_NOMEM || dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return kNoMemory;
  }
  if (code == SQLITE_FULL) return {error.what(), "record to a larger disk to have them all"};
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    return {error.what(), "do not open the file for writing while it is recorded"};
  }
  return {error.what(), "check the disk of the file"};
}

}  // namespace tidegauge::trace
