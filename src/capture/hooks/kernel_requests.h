// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

#include "capture/hooks/op_watch.h"
#include "core/events/ids.h"
#include "tidegauge/export.h"

namespace tidegauge {

/// The requests of a simulated kernel to its device's allocator, in the kernel's order. A real
/// kernel makes them within the op, where only the allocator sees them. So listeners that count
/// allocations (capture_listener.h) are notified of them, as Untracked memory:
///
///     request(a)  result(0)  request(b)  release(b)  release(a)
///
/// Results that are not named follow the requests that come before the first named one. A request
/// that is never released stays: a workspace that torch keeps.
class TIDEGAUGE_API KernelRequests {
 public:
  using Handle = uint32_t;

  /// The requests of the op that runs in this thread. The runner of the op fills them
  /// (op_switch.h).
  static KernelRequests& of_this_op();

  /// Requests without bytes have no effect, as in torch.
  Handle request(int64_t size_bytes);
  void release(Handle handle);
  /// Releases in the reverse order of the requests, as the end of a C++ scope does.
  void release_all_from(Handle first);
  void result(size_t position);

  Handle next_handle() const { return handle_count_; }
  void set_device(c10::Device device) { device_ = device; }

  /// Drops all steps. Nobody needs steps unless they are `wanted`.
  void restart(bool wanted);
  bool is_wanted() const { return is_wanted_; }
  void set_wanted(bool wanted) { is_wanted_ = wanted; }

  /// Notifies the listeners of the steps. `observe(position)`: observes the results at a position.
  /// The lock of StorageRegistry must be held.
  template <typename Observe>
  void report(const OpWatch& watch, Observe&& observe) {
    ids_.assign(handle_count_, StorageId());
    for (const Step& step : steps_) {
      if (step.kind == Kind::Result) {
        observe(step.number);
      } else {
        notify(step, watch);
      }
    }
  }

 private:
  enum class Kind : uint8_t { Request, Release, Result };
  struct Step {
    Kind kind{};
    uint32_t number = 0;  // a handle, or the position of a result
    int64_t size_bytes = 0;
  };

  void notify(const Step& step, const OpWatch& watch);

  c10::Device device_{c10::kCPU};
  bool is_wanted_ = false;
  uint32_t handle_count_ = 0;
  c10::SmallVector<Step, 8> steps_;
  c10::SmallVector<StorageId, 8> ids_;  // by handle
};

}  // namespace tidegauge
