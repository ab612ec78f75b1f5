// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bindings/mod_tracker.h"
#include "trace/recorder.h"
#include "track/memory_tracker.h"

namespace tidegauge::bindings {

/// The native half of tidegauge.MemTracker, and of FSDPMemTracker if `is_sharded`: then figures are
/// in its categories and states, and only modules of units are listed. All calls need the GIL.
class MemTracker : public ModuleListener, public std::enable_shared_from_this<MemTracker> {
 public:
  /// UsageError for `stacks` that there are not (capture/modules/birth_stacks.h).
  static std::shared_ptr<MemTracker> create(std::shared_ptr<ModTracker> modules, bool strict,
                                            bool allocator, const std::string& stacks,
                                            bool is_sharded);
  ~MemTracker() override;

  /// UsageError if another tracker records to it, or something was tracked already.
  void record_to(const std::shared_ptr<Recorder>& recorder);
  void start();
  void stop();

  /// UsageError for a role that does not exist.
  void track_tensor(pybind11::handle tensor, const std::string& role);
  /// A parameter or buffer that `module` has just registered. TypeError as ModuleRegistry::intern.
  void register_tensor(pybind11::handle module, pybind11::handle tensor, Role role);
  void track_module(pybind11::handle module, NamedBy named_by);
  void track_optimizer(pybind11::handle optimizer, NamedBy named_by);
  /// `grad` is the gradient of `input`; counts if that is a parameter.
  void track_gradient(pybind11::handle input, pybind11::handle grad);
  void reset_module_stats();

  void add_unit(UnitId unit, const std::string& name, const pybind11::sequence& modules);
  void label_unit(UnitId unit, UnitFact fact, const pybind11::sequence& tensors);
  /// Nothing for a module without statistics, or one that no unit belongs to.
  void mark_module(pybind11::handle module, ModuleState state);
  bool is_sharded() const { return is_sharded_; }
  /// A failure of our own hooks that was kept from the training.
  void note_failure(const std::string& what);
  int64_t failure_count() const { return failure_count_; }
  const std::string& first_failure() const { return first_failure_; }
  pybind11::list to_rows(const Snapshot& snapshot) const;

  /// Labels what modules own by now. A parameter or gradient that was exchanged without a word
  /// (`p.data = `, `p.grad = `, `half()`) is otherwise noticed at the next call of its module.
  void refresh_labels();

  pybind11::list modules();
  pybind11::dict module_stats(pybind11::handle module);

  MemoryTracker& memory() { return *memory_; }
  bool is_started() const { return start_count_ > 0; }

  void on_enter(pybind11::handle module, ModuleId id, bool is_root_call, pybind11::handle args,
                pybind11::handle kwargs) override;
  void on_leave(ModuleId id, pybind11::handle output) override;
  void on_compiled(pybind11::handle module, pybind11::handle output) override;
  void on_recompute() override { memory_->begin_recompute(); }
  void on_death(ModuleId id) override;

 private:
  MemTracker(std::shared_ptr<ModTracker> modules, bool strict, bool allocator, StackMode stacks,
             bool is_sharded);
  void label(pybind11::handle object, Role role, Since since, NamedBy named_by,
             ModuleId owner = {});
  void label_own(pybind11::handle module, ModuleId id, NamedBy named_by);
  void label_gradients(pybind11::handle module, NamedBy named_by);
  Role gradient_role(pybind11::handle parameter);
  void add_recompute_of_wrapped(pybind11::handle module, ModuleStats& stats);
  /// Whether the module owns other memory than when it was last looked at.
  bool note_owned(pybind11::handle module, ModuleId id);
  void describe(pybind11::handle module, ModuleId id);

  const std::shared_ptr<ModTracker> modules_;
  const std::shared_ptr<MemoryTracker> memory_;
  const bool strict_;
  const bool is_sharded_;
  std::unordered_set<ModuleId> unit_modules_;
  int start_count_ = 0;
  int64_t failure_count_ = 0;
  std::string first_failure_;
  /// What a module owned when it was last looked at, by address: compared, never followed.
  struct Owned {
    const void* object;
    const void* storage;
    friend bool operator==(const Owned&, const Owned&) = default;
  };
  std::unordered_map<ModuleId, std::vector<Owned>> owned_;
  std::vector<Owned> owned_now_;  // scratch
  std::unordered_set<ModuleId> described_;
};

/// Those whose `start` was called and `stop` was not.
const std::vector<std::shared_ptr<MemTracker>>& all_started();

using MemTrackerClass = pybind11::class_<MemTracker, std::shared_ptr<MemTracker>>;

/// Of an object, as in "torch.nn.modules.linear.Linear".
std::string class_name(pybind11::handle object);

void bind_mem_tracker(pybind11::module_& m);
void bind_mem_events(pybind11::module_& m);

}  // namespace tidegauge::bindings
