// SPDX-License-Identifier: BSD-3-Clause
// NCCL of any number of ranks, of which only this one exists. Every collective acts as if all ranks
// had sent what this rank sends; nothing waits.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "standin/runtime/cuda_types.h"
#include "standin/state/device_memory.h"
#include "standin/state/settings.h"
#include "standin/state/values.h"

namespace tidegauge::standin {
namespace {

struct Communicator {
  int rank;
  int ranks;
};
struct UniqueId {
  char bytes[128];
};

size_t size_of(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && static_cast<size_t>(type) < std::size(kSizes) ? kSizes[type] : 1;
}

/// Ranks of the next communicator that is split off; 0: as many as its parent has.
std::atomic<int> split_ranks{0};

int make(Communicator** out, int ranks, int rank) {
  static std::once_flag once;  // the buffers of NCCL, which torch's allocator does not know
  std::call_once(once, [] {
    DeviceMemory::instance().take(settings().communication_bytes, current_device());
  });
  *out = new Communicator{rank, ranks};
  return 0;
}

/// Bytes from `begin` to the end of its memory. A communicator may not know how many ranks it has;
/// nothing is written outside of memory.
size_t room(const void* begin) {
  const auto range = DeviceMemory::instance().find(begin);
  if (!range) return 0;
  return range->begin + range->size_bytes - reinterpret_cast<uintptr_t>(begin);
}

void copy(void* to, const void* from, size_t size_bytes) {
  values::copy_on_device(to, from, std::min(size_bytes, room(to)));
}

/// `to` receives the same message from every rank.
void repeat(void* to, const void* from, size_t size_bytes, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    auto* target = static_cast<char*>(to) + static_cast<size_t>(rank) * size_bytes;
    if (room(target) < size_bytes) return;
    values::copy_on_device(target, from, size_bytes);
  }
}

// Messages between two ranks. A rank that this one sends to sends the same back; a message without
// a counterpart brings unknown values.
struct Message {
  void* memory;
  size_t size_bytes;
  int peer;
};
struct Broadcast {
  const void* from;
  void* to;
  size_t size_bytes;
  bool is_ours;
};
thread_local int group_depth = 0;
thread_local std::vector<Broadcast> broadcasts;
thread_local std::vector<Message> sent;
thread_local std::vector<Message> received;

void exchange() {
  for (const Message& message : received) {
    const auto match = std::find_if(sent.begin(), sent.end(), [&](const Message& candidate) {
      return candidate.peer == message.peer;
    });
    if (match == sent.end()) {
      values::forget(message.memory, message.size_bytes);
      continue;
    }
    copy(message.memory, match->memory, std::min(message.size_bytes, match->size_bytes));
    sent.erase(match);
  }
  sent.clear();
  received.clear();
  const auto ours = std::find_if(broadcasts.begin(), broadcasts.end(),
                                 [](const Broadcast& each) { return each.is_ours; });
  for (const Broadcast& each : broadcasts) {
    if (ours != broadcasts.end())
      copy(each.to, ours->from, std::min(each.size_bytes, ours->size_bytes));
  }
  broadcasts.clear();
}

}  // namespace
}  // namespace tidegauge::standin

using namespace tidegauge::standin;

extern "C" {

/// NCCL learns from the other ranks how many share the colour of a split; here Python says it.
void tidegauge_standin_set_split_ranks(int ranks) { split_ranks = ranks; }

int ncclGetVersion(int* version) {
  *version = STANDIN_NCCL_VERSION;
  return 0;
}
const char* ncclGetErrorString(int error) {
  return error == 0 ? "no error" : "an error of the stand-in for NCCL";
}
const char* ncclGetLastError(void*) { return ""; }
int ncclGetUniqueId(UniqueId* id) {
  std::memset(id, 1, sizeof *id);
  return 0;
}
int ncclCommGetUniqueId(void*, UniqueId* id) { return ncclGetUniqueId(id); }
int ncclCommInitRank(Communicator** out, int ranks, UniqueId, int rank) {
  return make(out, ranks, rank);
}
int ncclCommInitRankConfig(Communicator** out, int ranks, UniqueId, int rank, void*) {
  return make(out, ranks, rank);
}
int ncclCommInitRankScalable(Communicator** out, int ranks, int rank, int, UniqueId*, void*) {
  return make(out, ranks, rank);
}
int ncclCommInitAll(Communicator** out, int ranks, const int*) {
  for (int rank = 0; rank < ranks; ++rank) make(out + rank, ranks, rank);
  return 0;
}
int ncclCommSplit(const Communicator* parent, int, int key, Communicator** out, void*) {
  const int ranks = split_ranks.exchange(0);
  return make(out, ranks > 0 ? ranks : parent->ranks, key);
}
int ncclCommShrink(const Communicator* parent, int*, int excluded, Communicator** out, void*, int) {
  return make(out, parent->ranks - excluded, parent->rank);
}
int ncclCommGrow(const Communicator*, int ranks, const UniqueId*, int rank, Communicator** out,
                 void*) {
  return make(out, ranks, rank);
}
int ncclCommCount(const Communicator* communicator, int* ranks) {
  *ranks = communicator->ranks;
  return 0;
}
int ncclCommUserRank(const Communicator* communicator, int* rank) {
  *rank = communicator->rank;
  return 0;
}
int ncclCommCuDevice(const Communicator*, int* device) {
  *device = current_device();
  return 0;
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = 0;
  return 0;
}
int ncclCommMemStats(void*, int, uint64_t* value) {
  *value = settings().communication_bytes;
  return 0;
}
int ncclCommRegister(void*, void* memory, size_t, void** handle) {
  *handle = memory;
  return 0;
}
int ncclCommWindowRegister(void*, void* memory, size_t, void** window, int) {
  *window = memory;
  return 0;
}
int ncclMemAlloc(void** out, size_t size_bytes) {
  *out = DeviceMemory::instance().allocate(size_bytes, current_device());
  return *out == nullptr ? 1 : 0;
}
int ncclMemFree(void* memory) {
  DeviceMemory::instance().release(memory);
  return 0;
}
int ncclRedOpCreatePreMulSum(int* op, ...) {
  *op = 5;
  return 0;
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int, void*, void*) {
  copy(to, from, count * size_of(type));
  return 0;
}
int ncclReduce(const void* from, void* to, size_t count, int type, int, int root,
               const Communicator* communicator, void*) {
  if (root == communicator->rank) copy(to, from, count * size_of(type));
  return 0;
}
/// A rank that is not the root keeps what it has, as if the root had sent the same. In a group of
/// broadcasts from all ranks, which is how torch gathers lists, the others send what this one does.
int ncclBroadcast(const void* from, void* to, size_t count, int type, int root,
                  const Communicator* communicator, void*) {
  broadcasts.push_back({from, to, count * size_of(type), root == communicator->rank});
  if (group_depth == 0) exchange();
  return 0;
}
int ncclBcast(void* memory, size_t count, int type, int root, const Communicator* communicator,
              void* stream) {
  return ncclBroadcast(memory, memory, count, type, root, communicator, stream);
}
int ncclAllGather(const void* from, void* to, size_t count, int type,
                  const Communicator* communicator, void*) {
  repeat(to, from, count * size_of(type), communicator->ranks);
  return 0;
}
int ncclGather(const void* from, void* to, size_t count, int type, int root,
               const Communicator* communicator, void*) {
  if (root == communicator->rank) repeat(to, from, count * size_of(type), communicator->ranks);
  return 0;
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int,
                      const Communicator* communicator, void*) {
  const size_t size_bytes = count * size_of(type);
  copy(to, static_cast<const char*>(from) + communicator->rank * size_bytes, size_bytes);
  return 0;
}
int ncclAlltoAll(const void* from, void* to, size_t count, int type,
                 const Communicator* communicator, void*) {
  copy(to, from, count * size_of(type) * communicator->ranks);
  return 0;
}
int ncclGroupStart() {
  ++group_depth;
  return 0;
}
int ncclGroupEnd() {
  group_depth = std::max(group_depth - 1, 0);
  if (group_depth == 0) exchange();
  return 0;
}
int ncclSend(const void* memory, size_t count, int type, int peer, void*, void*) {
  sent.push_back({const_cast<void*>(memory), count * size_of(type), peer});
  if (group_depth == 0) exchange();
  return 0;
}
int ncclRecv(void* memory, size_t count, int type, int peer, void*, void*) {
  received.push_back({memory, count * size_of(type), peer});
  if (group_depth == 0) exchange();
  return 0;
}

}  // extern "C"
