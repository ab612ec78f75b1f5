// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/events/device.h"
#include "core/events/ids.h"
#include "tidegauge/module_state.h"

namespace tidegauge {

/// All numbers below are stored in trace files: append, never renumber. No kind has the number 0,
/// so zeroed memory is never mistaken for an event.
enum class EventKind : uint8_t {
  StorageBorn = 1,
  StorageResized,
  StorageRelabelled,
  StorageFreed,
  ModuleEnter,
  ModuleExit,
  ModuleMark,  ///< a module reached a further state (FSDP: before and after gathering, ...)
  ModuleSize,  ///< the bytes of a module's inputs, outputs, parameters or buffers
  OptimizerStepBegin,
  OptimizerStepEnd,
  CollectiveBegin,
  CollectiveEnd,
  StepMarker,        ///< a training step begins
  StatisticsReset,   ///< the user cleared the module statistics; bytes and peak stay
  IterationBegin,    ///< the module lists restart; sizes of modules, bytes and peak stay
  PeakReset,         ///< the peak restarts from the current state (a tracker was entered)
  ModuleGone,        ///< the module was destroyed: its statistics are forgotten
  StorageClaimed,    ///< a storage was observed in memory that an allocator had reported
  AllocationFailed,  ///< an allocator ran out of memory; changes nothing
};

/// True for events about one storage: its birth, a change of size or label, its free.
constexpr bool is_of_storage(EventKind kind) {
  return (kind >= EventKind::StorageBorn && kind <= EventKind::StorageFreed) ||
         kind == EventKind::StorageClaimed;
}

enum class Phase : uint8_t { Forward, Backward, Recompute };
inline constexpr uint8_t kPhaseCount = 3;
/// "forward", "backward", "recompute"
std::string_view to_string(Phase phase);

/// Facts about the birth of a storage: bits, several of which may be set.
enum BirthFact : uint8_t {
  kInBackward = 1,
  kInRecompute = 2,
  kInOptimizerStep = 4,
  kFromAllocator = 8,  ///< reported by the allocator channel; no tensor is known yet
};
inline constexpr uint8_t kAllBirthFacts = 15;

/// A fact that capture states about a storage. The labeller turns it into a category.
enum class Role : uint8_t {
  IsParameter,
  IsBuffer,
  IsGradient,
  IsOptimizerState,
  IsExternal,
  IsInput,
  IsActivation,
  IsTemp,
  IsShardedParam,
  IsUnshardedParam,
  IsShardedGrad,
  IsUnshardedGrad,
  IsAllGatherBuffer,
  IsReduceScatterBuffer,
  IsAllReduceBuffer,
  IsPostForwardShard,
  IsUntracked,
  IsSavedForBackward,  ///< stated when a backward frees it
};
inline constexpr uint8_t kRoleCount = 18;

/// Since when a label applies: from its own event on, or from the birth of the storage.
enum class Since : uint8_t { Now, Birth };

inline constexpr ModuleState kFirstMark = ModuleState::BeforePreForward;  ///< states of ModuleMark
/// False for a value that is not an enumerator. A damaged trace may contain such values.
inline bool is_mark(ModuleState state) {
  return state >= kFirstMark && static_cast<uint8_t>(state) < kModuleStateCount;
}
inline bool is_phase(Phase phase) { return static_cast<uint8_t>(phase) < kPhaseCount; }

enum class SizeOf : uint8_t { Inputs, Outputs, Parameters, Buffers };
inline constexpr uint8_t kSizeOfCount = 4;

/// One fact about a run, from capture or from a trace. Fields that a kind does not use are zero.
/// Names, shapes and stacks are in side tables, by id.
struct Event {
  int64_t time_ns = 0;
  StorageId storage;
  int64_t size_bytes =
      0;  ///< StorageBorn, StorageResized, ModuleSize, AllocationFailed (0: unknown)
  ModuleId module;
  OpId op;  ///< StorageBorn, StorageClaimed, Collective*, AllocationFailed
  StreamId stream;
  ThreadId thread;
  Device device;  ///< StorageBorn; a storage never changes its device
  EventKind kind{};
  Phase phase{};            ///< ModuleEnter, ModuleExit
  Role role{};              ///< StorageRelabelled
  Since since{};            ///< StorageRelabelled
  ModuleState state{};      ///< ModuleMark
  SizeOf size_of{};         ///< ModuleSize
  uint8_t birth_facts = 0;  ///< StorageBorn, StorageClaimed: BirthFact bits

  friend bool operator==(const Event&, const Event&) = default;
};
static_assert(sizeof(Event) == 48 && std::is_trivially_copyable_v<Event>);

}  // namespace tidegauge
