// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "capture/storages/capture_log.h"
#include "core/ledger/ledger.h"

namespace tidegauge {
namespace {

RegisteredStorage record_of(uint64_t id, int64_t size_bytes) {
  RegisteredStorage record;
  record.id = StorageId(id);
  record.size_bytes = size_bytes;
  record.device = kCpu;
  return record;
}

void append_birth(CaptureLog& log, uint64_t id, int64_t size_bytes) {
  if (!log.has_room()) log.grow();
  const at::Tensor tensor = at::empty({size_bytes}, at::kByte);
  log.append_birth(record_of(id, size_bytes), tensor.unsafeGetTensorImpl(), 0, OpId(1), {});
}

std::vector<Event> apply(CaptureLog& log, Ledger& ledger) {
  std::vector<Event> applied;
  log.backlog().follow([&](const Event& event, const OpenCalls&) {
    if (LiveSet::wants(event)) log.live().set_module(event, {});
  });
  log.backlog().apply_to(ledger, [&](const Event& event) { applied.push_back(event); });
  return applied;
}

TEST(CaptureLog, EmptyLogHasNoRoomUntilItGrows) {
  CaptureLog log;
  EXPECT_FALSE(log.has_room());
  log.grow();
  EXPECT_TRUE(log.has_room());
  EXPECT_FALSE(log.is_full());
}

TEST(CaptureLog, BirthHasTheTimeAndThreadOfItsMoment) {
  CaptureLog log;
  Ledger ledger;
  log.set_time(7);
  append_birth(log, 1, 24);
  const auto applied = apply(log, ledger);
  ASSERT_EQ(applied.size(), 1);
  EXPECT_EQ(applied[0].kind, EventKind::StorageBorn);
  EXPECT_EQ(applied[0].time_ns, 7);
  EXPECT_EQ(applied[0].thread, ThreadId(static_cast<uint16_t>(torch_thread::id())));
  EXPECT_EQ(ledger.current().total_bytes(kCpu), 24);
}

TEST(CaptureLog, FreeOfAnUnknownStorageHasNoEffect) {
  CaptureLog log;
  Ledger ledger;
  append_birth(log, 1, 24);
  log.append_free(StorageId(1), /*by_backward=*/false);
  log.append_free(StorageId(2), /*by_backward=*/false);
  EXPECT_EQ(apply(log, ledger).size(), 2);
  EXPECT_EQ(ledger.current().total_bytes(kCpu), 0);
  EXPECT_EQ(ledger.anomalies().total(), 0);
}

TEST(CaptureLog, IsFullWhenTheLiveSetShouldDropTheDead) {
  CaptureLog log;
  for (uint64_t i = 1; i <= 256; ++i) append_birth(log, i, 1);
  EXPECT_TRUE(log.is_full());
}

}  // namespace
}  // namespace tidegauge
