// SPDX-License-Identifier: BSD-3-Clause
#include "analyze/analysis.h"

#include <vector>

namespace tidegauge {
namespace {

using trace::CodedEvent;

constexpr size_t kKeptSteps = 100'000;

/// Returns the sequence numbers of storage events that the ledger refused.
std::vector<uint64_t> make_first_pass(EventSource& source, uint64_t last,
                                      std::span<Analysis* const> analyses, Ledger& ledger,
                                      trace::StorageEffects& effects, const trace::Passes& passes) {
  std::vector<uint64_t> refused;
  source.visit_batches(last, [&](std::span<const CodedEvent> events, uint64_t sequence) {
    for (const CodedEvent& traced : events) {
      const auto effect = effects.apply(traced.event);
      if (!effect && is_of_storage(traced.event.kind)) refused.push_back(sequence);
      const AppliedEvent applied{traced, ledger.now(), effect ? &*effect : nullptr};
      for (Analysis* analysis : analyses) analysis->learn(applied, ledger);
      passes.report(sequence++, 0);
    }
  });
  return refused;
}

void make_second_pass(EventSource& source, uint64_t last, std::span<Analysis* const> analyses,
                      trace::RepeatedEffects effects, const trace::Passes& passes) {
  trace::Position position;
  source.visit_batches(last, [&](std::span<const CodedEvent> events, uint64_t sequence) {
    for (const CodedEvent& traced : events) {
      position.advance(traced.event);
      const trace::StorageEffect* effect = effects.apply(traced.event);
      const AppliedEvent applied{traced, effects.now(), effect, effects.place()};
      for (Analysis* analysis : analyses) analysis->collect(applied, position);
      passes.report(sequence++, 1);
    }
  });
}

}  // namespace

void analyze(EventSource& source, std::span<Analysis* const> analyses, const Progress& progress) {
  const uint64_t last = source.event_count();
  std::vector<Analysis*> first;
  std::vector<Analysis*> second;
  for (Analysis* analysis : analyses) {
    using Passes = Analysis::Passes;
    const Passes passes = analysis->begin(source, last);
    if (passes == Passes::First || passes == Passes::Both) first.push_back(analysis);
    if (passes == Passes::Second || passes == Passes::Both) second.push_back(analysis);
  }
  const trace::Passes passes(progress, last, second.empty() ? 1 : 2);
  trace::StorageEffects effects({.kept_steps = kKeptSteps});
  std::vector<uint64_t> refused =
      make_first_pass(source, last, first, effects.ledger(), effects, passes);
  for (Analysis* analysis : analyses) analysis->end_first_pass(effects.ledger());
  if (!second.empty()) {
    make_second_pass(source, last, second, trace::RepeatedEffects(std::move(refused)), passes);
  }
  for (Analysis* analysis : analyses) analysis->finish();
}

}  // namespace tidegauge
