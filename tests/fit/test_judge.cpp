// SPDX-License-Identifier: BSD-3-Clause
//
// Sizes by hand. A request of 10 MiB or more gets its own plain segment, in steps of 2 MiB;
// expandable segments grow by pages of 20 MiB for large requests and 2 MiB for small ones.
//
//   Kept     24 MiB, 40 MiB                             plain 64 MiB, expandable 80 MiB
//   Replaced 24 MiB, freed, then 40 MiB                 plain 64 MiB (24 cached), expandable 40 MiB
#include <gtest/gtest.h>

#include "core/events/event_factory.h"
#include "fit/assumed_memory.h"
#include "fit/judge.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr Device kGpu = cuda(0);
constexpr int64_t kWorkspaces = 2 * 8'519'680;
constexpr const char* kPlain = "";
constexpr const char* kExpandable = "expandable_segments:True";

RequestStream make_requests(std::initializer_list<Event> events) {
  RequestStream stream(kGpu);
  for (const Event& event : events) stream.add(event);
  return stream;
}
Event born(uint64_t id, int64_t size_bytes) {
  return events::storage_born({0, {}, kGpu}, StorageId(id), size_bytes);
}
Event freed(uint64_t id) { return events::storage_freed({}, StorageId(id)); }

RequestStream kept() { return make_requests({born(1, 24 * kMiB), born(2, 40 * kMiB)}); }
RequestStream replaced() {
  return make_requests({born(1, 24 * kMiB), freed(1), born(2, 40 * kMiB), freed(2)});
}

constexpr Assumptions kNothing{.context_bytes = 0,
                               .cublas_workspaces = 0,
                               .cublas_workspace_bytes = 0,
                               .communication_bytes = 0};
/// Assumes only a context of 300 to 800 MiB, 500 expected.
constexpr Assumptions kContextAlone{.context_bytes = {},
                                    .cublas_workspaces = 0,
                                    .cublas_workspace_bytes = 0,
                                    .communication_bytes = 0};

struct Question {
  int64_t memory_bytes = 0;  // 0: no device
  std::optional<std::string> alloc_conf{};
  Assumptions assumptions = kNothing;
  int compute = 8;
};

Verdict ask(const RequestStream& requests, const Question& question, RunKind run = {}) {
  Replays replays(requests);
  FitOptions options;
  options.alloc_conf = question.alloc_conf;
  options.assumptions = question.assumptions;
  if (question.memory_bytes > 0) {
    options.device = DeviceModel{"", "the device", question.memory_bytes, question.compute};
  }
  return judge(replays, run, options);
}

const Layer& find_layer(const Verdict& verdict, std::string_view name) {
  for (const Layer& layer : verdict.layers) {
    if (layer.name == name) return layer;
  }
  throw std::runtime_error("no such layer");
}

TEST(Judge, LayersAddUpAtThePeakOfReservedMemory) {
  // 1,000 B are rounded to 1,024 B in a segment of 2 MiB; 12 MiB have their own segment.
  const RequestStream requests = make_requests({born(1, 1000), born(2, 12 * kMiB)});
  const Verdict verdict = ask(requests, {.alloc_conf = kPlain, .assumptions = {}});
  struct Row {
    const char* name;
    Basis basis;
    int64_t size_bytes;
  };
  const std::vector<Row> expected{
      {"tensors", Basis::Measured, 1000 + 12 * kMiB},
      {"rounding and slack", Basis::Modelled, 24},
      {"active", Basis::Sum, 1024 + 12 * kMiB},
      {"unused in segments", Basis::Modelled, 2 * kMiB - 1024},
      {"reserved", Basis::Sum, 14 * kMiB},
      {"cuBLAS workspaces", Basis::Assumed, kWorkspaces},
      {"CUDA context", Basis::Assumed, 500 * kMiB},
      {"communication", Basis::Assumed, 0},
      {"on the device", Basis::Sum, 514 * kMiB + kWorkspaces},
  };
  ASSERT_EQ(verdict.layers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(verdict.layers[i].name, expected[i].name);
    EXPECT_EQ(verdict.layers[i].basis, expected[i].basis) << expected[i].name;
    EXPECT_EQ(verdict.layers[i].size_bytes, expected[i].size_bytes) << expected[i].name;
  }
  EXPECT_EQ(verdict.needed_bytes, verdict.layers.back().size_bytes);
  EXPECT_EQ(verdict.low_bytes, 314 * kMiB + kWorkspaces);
  EXPECT_EQ(verdict.high_bytes, 814 * kMiB + kWorkspaces);
  EXPECT_FALSE(verdict.fit);
  EXPECT_FALSE(verdict.margin_bytes);
}

TEST(Judge, ReservedLiesBetweenTheTwoModesIfNoneIsNamed) {
  const Verdict both = ask(kept(), {});
  EXPECT_EQ(both.needed_bytes, 64 * kMiB);  // under torch's default, plain segments
  EXPECT_EQ(both.low_bytes, 64 * kMiB);
  EXPECT_EQ(both.high_bytes, 80 * kMiB);
  const Layer& reserved = find_layer(both, "reserved");
  EXPECT_EQ(reserved.size_bytes, 64 * kMiB);
  EXPECT_EQ(reserved.high_bytes, 80 * kMiB);
  EXPECT_EQ(ask(replaced(), {}).low_bytes, 40 * kMiB);  // expandable reserves less here
}

TEST(Judge, NamedSettingsHaveNoBand) {
  for (const auto& [alloc_conf, bytes] :
       {std::pair(kPlain, 64 * kMiB), std::pair(kExpandable, 80 * kMiB)}) {
    const Verdict verdict = ask(kept(), {.alloc_conf = alloc_conf});
    EXPECT_EQ(verdict.needed_bytes, bytes);
    EXPECT_EQ(verdict.low_bytes, bytes);
    EXPECT_EQ(verdict.high_bytes, bytes);
  }
}

TEST(Judge, FitsIfTheUpperEndOfTheBandFits) {
  const Verdict verdict = ask(kept(), {.memory_bytes = 80 * kMiB});
  EXPECT_EQ(verdict.fit, Fit::Fits);
  EXPECT_EQ(verdict.margin_bytes, 16 * kMiB);  // of what is needed under the default
  EXPECT_EQ(verdict.failed_requests, 0);
}

TEST(Judge, TooCloseToCallIfOneModeFitsAndTheOtherDoesNot) {
  EXPECT_EQ(ask(kept(), {.memory_bytes = 80 * kMiB - 1}).fit, Fit::TooCloseToCall);
  EXPECT_EQ(ask(kept(), {.memory_bytes = 64 * kMiB}).fit, Fit::TooCloseToCall);
  EXPECT_EQ(ask(kept(), {.memory_bytes = 64 * kMiB - 1}).fit, Fit::DoesNotFit);
}

TEST(Judge, FitsAfterRetriesIfTheAllocatorHasToFreeItsCache) {
  // Plain: the cached 24 MiB must be freed first, to allocate 40 MiB. Expandable: at most 40 MiB.
  EXPECT_EQ(ask(replaced(), {.memory_bytes = 64 * kMiB}).fit, Fit::Fits);
  const Verdict verdict = ask(replaced(), {.memory_bytes = 64 * kMiB - 1});
  EXPECT_EQ(verdict.fit, Fit::FitsAfterRetries);
  EXPECT_EQ(verdict.margin_bytes, -1);
  EXPECT_EQ(verdict.failed_requests, 0);
  EXPECT_EQ(ask(replaced(), {.memory_bytes = 40 * kMiB}).fit, Fit::FitsAfterRetries);
  EXPECT_EQ(ask(replaced(), {.memory_bytes = 40 * kMiB - 1}).fit, Fit::DoesNotFit);
}

TEST(Judge, DoesNotFitSaysHowManyRequestsFail) {
  const Verdict verdict = ask(kept(), {.memory_bytes = 30 * kMiB, .alloc_conf = kPlain});
  EXPECT_EQ(verdict.fit, Fit::DoesNotFit);
  EXPECT_EQ(verdict.failed_requests, 1);  // 24 MiB fit, 40 MiB do not
  EXPECT_EQ(verdict.margin_bytes, -34 * kMiB);
}

TEST(Judge, BandOfAssumptionsDecides) {
  const auto fit = [](int64_t memory_mib) {
    return ask(kept(), {memory_mib * kMiB, kPlain, kContextAlone}).fit;
  };
  EXPECT_EQ(fit(864), Fit::Fits);            // 64 + 800
  EXPECT_EQ(fit(863), Fit::TooCloseToCall);  // nothing is cached that could be freed
  EXPECT_EQ(fit(364), Fit::TooCloseToCall);  // 64 + 300
  EXPECT_EQ(fit(363), Fit::DoesNotFit);
  const auto fit_replaced = [](int64_t memory_mib) {
    return ask(replaced(), {memory_mib * kMiB, kPlain, kContextAlone}).fit;
  };
  EXPECT_EQ(fit_replaced(864), Fit::Fits);
  EXPECT_EQ(fit_replaced(863), Fit::FitsAfterRetries);
  EXPECT_EQ(fit_replaced(840), Fit::FitsAfterRetries);  // 40 + 800
  EXPECT_EQ(fit_replaced(839), Fit::TooCloseToCall);
}

/// An earlier version said "Fits ... (78.1 GiB to 79.3 GiB) ... has 79.1 GiB".
TEST(Judge, BandOfARunThatFitsEndsBelowTheMemoryOfTheDevice) {
  for (const RequestStream& requests : {kept(), replaced()}) {
    for (int64_t memory_mib = 30; memory_mib <= 900; memory_mib += 2) {
      const Verdict verdict =
          ask(requests, {.memory_bytes = memory_mib * kMiB, .assumptions = kContextAlone});
      EXPECT_EQ(verdict.fit == Fit::Fits, verdict.high_bytes <= memory_mib * kMiB) << memory_mib;
      EXPECT_LE(verdict.low_bytes, verdict.needed_bytes);
      EXPECT_LE(verdict.needed_bytes, verdict.high_bytes);
    }
  }
}

TEST(Judge, MemoryFractionOfTheSettingsIsALimit) {
  const auto fit = [](const char* alloc_conf) {
    return ask(kept(), {.memory_bytes = 100 * kMiB, .alloc_conf = alloc_conf}).fit;
  };
  EXPECT_EQ(fit("per_process_memory_fraction:0.64"), Fit::Fits);
  EXPECT_EQ(fit("per_process_memory_fraction:0.5"), Fit::DoesNotFit);
}

TEST(Judge, AssumptionsFollowTheDeviceAndTheNumberOfRanks) {
  const auto layer = [](const char* name, int compute, int64_t world_size) {
    const Verdict verdict =
        ask(kept(), {kGiB, kPlain, {}, compute}, {world_size, Basis::Simulated});
    EXPECT_EQ(verdict.layers.front().basis, Basis::Simulated);
    return find_layer(verdict, name);
  };
  EXPECT_EQ(layer("cuBLAS workspaces", 8, 1).size_bytes, kWorkspaces);
  EXPECT_EQ(layer("cuBLAS workspaces", 9, 1).size_bytes, 64 * kMiB);
  EXPECT_EQ(layer("communication", 9, 1).high_bytes, 0);
  const Layer communication = layer("communication", 9, 8);
  EXPECT_EQ(communication.low_bytes, 256 * kMiB);
  EXPECT_EQ(communication.size_bytes, 512 * kMiB);
  EXPECT_EQ(communication.high_bytes, 1024 * kMiB);
}

TEST(Judge, SmallestDeviceFitsTheUpperEndOfTheBandWithItsOwnWorkspaces) {
  const RequestStream requests = kept();
  Replays replays(requests);
  FitOptions options;
  options.alloc_conf = kPlain;
  // 64 MiB reserved, a context of up to 800 MiB, workspaces of 64 MiB from compute 9 on.
  options.catalogue = std::vector<DeviceModel>{
      {"a", "A", 64 * kMiB + 800 * kMiB, 8}, {"b", "B", 900 * kMiB, 9}, {"c", "C", 901 * kMiB, 8}};
  EXPECT_EQ(judge(replays, {}, options).smallest->key, "c");
  options.catalogue->at(1).memory_bytes = 928 * kMiB;
  EXPECT_EQ(judge(replays, {}, options).smallest->key, "b");
  options.catalogue->resize(1);
  EXPECT_FALSE(judge(replays, {}, options).smallest);
}

TEST(Judge, RefusesInvalidAssumptions) {
  Assumptions negative;
  negative.context_bytes = -1;
  EXPECT_THROW(ask(kept(), {.assumptions = negative}), UsageError);
  Assumptions huge;
  huge.cublas_workspaces = 1 << 30;
  huge.cublas_workspace_bytes = int64_t{1} << 50;
  EXPECT_THROW(ask(kept(), {.assumptions = huge}), UsageError);
}

TEST(Judge, RunWithoutRequestsNeedsOnlyTheAssumptions) {
  const Verdict verdict = ask(RequestStream(kGpu), {.memory_bytes = kGiB, .assumptions = {}});
  EXPECT_EQ(verdict.needed_bytes, 500 * kMiB + kWorkspaces);
  EXPECT_EQ(verdict.fit, Fit::Fits);
}

TEST(Replays, EachSimulationRunsOnce) {
  const RequestStream requests = kept();
  Replays replays(requests);
  const SimulatedRun* first = &replays.run(kPlain);
  EXPECT_EQ(&replays.run(kPlain), first);
  EXPECT_NE(&replays.run(kPlain, kGiB), first);
  EXPECT_THROW(replays.run("nonsense:1"), UsageError);
}

TEST(ReadRunKind, IgnoresInvalidFacts) {
  EXPECT_EQ(read_run_kind({}).world_size, 1);
  EXPECT_EQ(read_run_kind({{"world_size", "8"}}).world_size, 8);
  for (const char* damaged : {"", "x", "8x", "-3", "0", "99999999999999999999"}) {
    EXPECT_EQ(read_run_kind({{"world_size", damaged}}).world_size, 1) << damaged;
  }
  EXPECT_EQ(read_run_kind({}).tensors, Basis::Measured);
  EXPECT_EQ(read_run_kind({{"simulated", "cuda"}}).tensors, Basis::Simulated);
}

TEST(ChooseDevice, PrefersTheHighestPeakOtherThanTheCpu) {
  const DevicePeaks peaks{{"cpu", 100}, {"meta", 200}, {"cuda:0", 10}, {"cuda:1", 20}};
  EXPECT_EQ(choose_device(peaks, {}), "cuda:1");
  EXPECT_EQ(choose_device(peaks, "cpu"), "cpu");
  EXPECT_EQ(choose_device({{"meta", 1}}, {}), "cpu");
  try {
    choose_device(peaks, "cuda:2");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "the run used no memory on device 'cuda:2' (it used: cpu, meta, cuda:0, "
                 "cuda:1)");
  }
}

}  // namespace
}  // namespace tidegauge
