// SPDX-License-Identifier: BSD-3-Clause
// Any sequence of events, also impossible ones: the ledger, all analyses and the replay read it,
// and their figures agree.
#include <memory>
#include <string>

#include "allocator/request_stream.h"
#include "analyze/run.h"
#include "core/ledger/ledger.h"
#include "input.h"
#include "trace/memory_trace.h"

namespace tidegauge::fuzz {
namespace {

constexpr Device kDevices[] = {kCpu, cuda(0), cuda(1), kMeta, {-1, 7}, {107, -128}};

int64_t choose_size(Input& input) {
  switch (input.byte() % 8) {
    case 0:
      return input.take<int64_t>();
    case 1:
      return 0;
    default:
      return input.below(1 << 20);
  }
}

/// A few ids, so that events concern the same things.
Event choose_event(Input& input) {
  Event event;
  event.kind = static_cast<EventKind>(input.byte() % 21);
  event.time_ns = input.one_in(16) ? input.take<int64_t>() : input.byte();
  event.storage = StorageId(input.byte() % 16);
  event.module = ModuleId(input.byte() % 6);
  event.size_bytes = choose_size(input);
  event.op = OpId(input.byte() % 4);
  event.stream = StreamId(input.byte() % 3);
  event.thread = ThreadId(input.byte() % 3);
  event.device = kDevices[input.byte() % std::size(kDevices)];
  event.phase = static_cast<Phase>(input.byte() % (kPhaseCount + 1));
  event.role = static_cast<Role>(input.byte() % (kRoleCount + 1));
  event.since = static_cast<Since>(input.byte() % 3);
  event.state = static_cast<ModuleState>(input.byte() % (kModuleStateCount + 1));
  event.size_of = static_cast<SizeOf>(input.byte() % (kSizeOfCount + 1));
  event.birth_facts = input.byte();
  return event;
}

void read(Input& input) {
  const auto trace = std::make_shared<MemoryTrace>();
  Ledger ledger;
  RequestStream requests(cuda(0));
  uint64_t sequence = 0;
  for (uint32_t id = 1; id < 6; ++id) {
    trace->name_module(ModuleId(id), "Net." + std::to_string(id), "Linear");
    trace->name_unit(UnitId(id), std::to_string(id));
  }
  while (!input.is_empty() && sequence < 2000) {
    const Event event = choose_event(input);
    ledger.apply(event);
    requests.add(event, ++sequence);
    if (event.kind == EventKind::AllocationFailed) {
      trace->record_failure(event, {});
    } else {
      trace->record(event, nullptr, StackId(input.byte() % 3));
    }
    if (input.one_in(8)) {
      trace->record_unit({.time_ns = event.time_ns,
                          .storage = event.storage,
                          .unit = UnitId(input.byte() % 6),
                          .kind = static_cast<UnitEventKind>(input.byte() % 8)});
    }
  }
  const Run run(trace, {.timeline = TimelineOptions{.max_moments = 100}});
  requests.simulate({.total_bytes = int64_t{1} << 32});
  if (run.summary().end != ledger.current()) fail("another end");
  const Snapshot peak = ledger.peak();
  for (const DevicePeak& found : run.summary().peaks) {
    const CategorySplit* split = peak.find(found.device);
    if (split == nullptr || *split != found.split) fail("another peak");
  }
}

}  // namespace
}  // namespace tidegauge::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tidegauge::fuzz::Input input(data, size);
  tidegauge::fuzz::expect_clean_errors([&] { tidegauge::fuzz::read(input); });
  return 0;
}
