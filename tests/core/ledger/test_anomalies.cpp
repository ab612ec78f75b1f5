// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/ledger/anomalies.h"
#include "ledger_script.h"

namespace tidegauge {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// One invalid event per row, applied to a ledger that holds storage 1 with 10 bytes.
struct Row {
  const char* name;
  void (*apply_to)(Script&);
  Anomaly anomaly;
  const char* sentence;
};

Event corrupt(Event event, void (*change)(Event&)) {
  change(event);
  return event;
}

constexpr Row kRows[] = {
    {"kind 0", [](Script& s) { s.apply(Event{}); }, Anomaly::UnknownEvent,
     "Event 2: an event of kind 0 has a value that this version does not know; ignored."},
    {"kind 200", [](Script& s) { s.happens(static_cast<EventKind>(200)); }, Anomaly::UnknownEvent,
     "Event 2: an event of kind 200 has a value that this version does not know; ignored."},
    {"role", [](Script& s) { s.is_now(1, static_cast<Role>(kRoleCount)); }, Anomaly::UnknownEvent,
     "Event 2: an event of kind 3 has a value that this version does not know; ignored."},
    {"since",
     [](Script& s) {
       s.apply(corrupt(events::storage_relabelled({}, StorageId(1), Role::IsBuffer, Since::Now),
                       [](Event& e) { e.since = static_cast<Since>(2); }));
     },
     Anomaly::UnknownEvent, ""},
    {"birth fact", [](Script& s) { s.born(2, 5, 16); }, Anomaly::UnknownEvent, ""},
    {"phase", [](Script& s) { s.enter(1, static_cast<Phase>(3)); }, Anomaly::UnknownEvent, ""},
    {"phase of exit", [](Script& s) { s.exit(1, static_cast<Phase>(3)); }, Anomaly::UnknownEvent,
     ""},
    {"mark of a call's state", [](Script& s) { s.mark(1, ModuleState::PeakForward); },
     Anomaly::UnknownEvent, ""},
    {"mark", [](Script& s) { s.mark(1, static_cast<ModuleState>(16)); }, Anomaly::UnknownEvent, ""},
    {"unknown kind of size", [](Script& s) { s.size(1, static_cast<SizeOf>(4), 1); },
     Anomaly::UnknownEvent, ""},
    {"birth of 0", [](Script& s) { s.born(0, 5); }, Anomaly::NoStorage,
     "Event 2: a storage event of kind 1 names no storage; ignored."},
    {"free of 0", [](Script& s) { s.freed(0); }, Anomaly::NoStorage, ""},
    {"enter of 0", [](Script& s) { s.enter(0); }, Anomaly::NoModule,
     "Event 2: a module event of kind 5 names no module; ignored."},
    {"exit of 0", [](Script& s) { s.exit(0); }, Anomaly::NoModule, ""},
    {"mark of 0", [](Script& s) { s.mark(0, ModuleState::AfterPreForward); }, Anomaly::NoModule,
     ""},
    {"size of 0", [](Script& s) { s.size(0, SizeOf::Inputs, 1); }, Anomaly::NoModule, ""},
    {"negative birth", [](Script& s) { s.born(2, -1); }, Anomaly::NegativeSize,
     "Event 2: a size of -1 bytes is given for storage 2; ignored."},
    {"negative resize", [](Script& s) { s.resized(1, -8); }, Anomaly::NegativeSize, ""},
    {"negative module size", [](Script& s) { s.size(3, SizeOf::Inputs, -1); },
     Anomaly::NegativeSize, "Event 2: a size of -1 bytes is given for module 3; ignored."},
    {"overflow by birth", [](Script& s) { s.born(2, kMax); }, Anomaly::TotalTooLarge,
     "Event 2: with 9223372036854775807 bytes for storage 2, the total of cpu does not fit into "
     "63 bits; ignored."},
    {"double birth", [](Script& s) { s.born(1, 5); }, Anomaly::AlreadyBorn,
     "Event 2: birth of storage 1, which is already alive; ignored."},
    {"resize of unknown", [](Script& s) { s.resized(7, 5); }, Anomaly::ResizeOfUnknown,
     "Event 2: resize of storage 7, which is not alive: it was never born or is already freed; "
     "ignored."},
    {"relabel of unknown", [](Script& s) { s.was_always(7, Role::IsTemp); },
     Anomaly::RelabelOfUnknown, ""},
    {"free of unknown", [](Script& s) { s.freed(7); }, Anomaly::FreeOfUnknown, ""},
    {"exit without enter", [](Script& s) { s.exit(4); }, Anomaly::ExitWithoutEnter,
     "Event 2: exit of module 4 in thread 1, which has no open call in that phase; ignored."},
    {"optimizer", [](Script& s) { s.happens(EventKind::OptimizerStepEnd); },
     Anomaly::OptimizerStepEndWithoutBegin,
     "Event 2: an optimizer step ends in thread 1, but none is running; ignored."},
    {"collective", [](Script& s) { s.happens(EventKind::CollectiveEnd); },
     Anomaly::CollectiveEndWithoutBegin, ""},
};

TEST(Anomalies, InvalidEventIsCountedDescribedAndChangesNothing) {
  std::set<Anomaly> seen;
  for (const Row& row : kRows) {
    Script s;
    s.born(1, 10);
    row.apply_to(s);
    const Anomalies& anomalies = s.ledger.anomalies();
    EXPECT_EQ(anomalies.total(), 1u) << row.name;
    EXPECT_EQ(anomalies.count_of(row.anomaly), 1u) << row.name;
    EXPECT_FALSE(anomalies.first().empty()) << row.name;
    EXPECT_EQ(anomalies.first(), anomalies.first_of(row.anomaly)) << row.name;
    if (*row.sentence) {
      EXPECT_EQ(anomalies.first(), row.sentence);
    }
    EXPECT_EQ(s.ledger.storage_count(), 1u) << row.name;
    EXPECT_EQ((*s.ledger.current().find(kCpu))[Category::Activation], 10) << row.name;
    EXPECT_EQ(s.ledger.peak().total_bytes(kCpu), 10) << row.name;
    EXPECT_TRUE(s.ledger.modules().empty()) << row.name;
    seen.insert(row.anomaly);
  }
  EXPECT_EQ(seen.size(), kAnomalyCount);
}

TEST(Anomalies, DoubleFreeIsCountedAndRemovesNothing) {
  Script s;
  s.born(1, 10).born(2, 20).freed(1).freed(1);
  EXPECT_EQ(s.ledger.anomalies().count_of(Anomaly::FreeOfUnknown), 1u);
  EXPECT_EQ(s.ledger.current().total_bytes(kCpu), 20);
}

TEST(Anomalies, ResizeBeyond63BitsKeepsTheOldSize) {
  Script s;
  s.born(1, kMax - 5).born(2, 5).resized(2, 6);
  EXPECT_EQ(s.ledger.anomalies().count_of(Anomaly::TotalTooLarge), 1u);
  EXPECT_EQ(s.ledger.current().total_bytes(kCpu), kMax);
  s.freed(2);
  EXPECT_EQ(s.ledger.current().total_bytes(kCpu), kMax - 5);
}

TEST(Anomalies, OnlyTheFirstAnomalyOfAKindIsDescribed) {
  Script s;
  s.freed(7).freed(8).resized(9, 1);
  EXPECT_EQ(s.ledger.anomalies().count_of(Anomaly::FreeOfUnknown), 2u);
  EXPECT_NE(s.ledger.anomalies().first().find("storage 7"), std::string::npos);
  EXPECT_NE(s.ledger.anomalies().first_of(Anomaly::ResizeOfUnknown).find("storage 9"),
            std::string::npos);
  EXPECT_EQ(s.ledger.anomalies().total(), 3u);
}

}  // namespace
}  // namespace tidegauge
