// SPDX-License-Identifier: BSD-3-Clause
#include "trace/memory_trace.h"

#include <algorithm>

#include "tidegauge/errors.h"
#include "trace/database.h"
#include "trace/run_facts.h"

namespace tidegauge {

using trace::CodedEvent;
using trace::Names;

MemoryTrace::MemoryTrace(const std::map<std::string, std::string>& facts)
    : facts_(trace::read_run_facts(facts)) {}

void MemoryTrace::save(const std::string& path, bool overwrites) const {
  try {
    trace::TraceWriter writer(path, overwrites, 0, facts_);
    writer.write(events_, units_, names_, nullptr, {});
    writer.write_summary(
        {{"ended", trace::wall_clock()}, {"lost_events", std::to_string(lost_events_)}});
  } catch (const trace::SqlError& error) {
    throw IoError("cannot write the trace " + path + ": " + error.what());
  }
}

/// The tracker must not get an exception. If there is no memory for an event, it counts as lost.
template <typename Change>
void MemoryTrace::change(Change change) noexcept {
  try {
    change();
  } catch (...) {
    ++lost_events_;
  }
}

void MemoryTrace::record(const Event& event, const TensorFacts* first_tensor,
                         StackId stack) noexcept {
  change([&] {
    CodedEvent traced{.event = event, .stack = stack.value};
    if (first_tensor != nullptr) traced.tensor = tensors_.intern(*first_tensor, names_);
    events_.push_back(traced);
  });
}

void MemoryTrace::record_failure(const Event& event, const PostMortem& post_mortem) noexcept {
  change([&] {
    const auto id = static_cast<uint32_t>(names_.failures.size() + 1);
    names_.failures[id] = post_mortem;
    events_.push_back({.event = event, .tensor = id});
  });
}

void MemoryTrace::name_module(ModuleId module, std::string_view name,
                              std::string_view class_name) noexcept {
  change([&] {
    Names::Module& row = names_.modules[module];
    row.name = name;
    if (!class_name.empty()) row.class_name = class_name;
  });
}

void MemoryTrace::name_op(OpId op, std::string_view name) noexcept {
  change([&] { names_.ops[op] = name; });
}

void MemoryTrace::name_owned(StorageId storage, ModuleId module, std::string_view name) noexcept {
  change([&] { names_.owned.insert({storage, module, std::string(name)}); });
}

void MemoryTrace::count_optimizer_step(std::string_view class_name) noexcept {
  change([&] { ++names_.optimizer_steps[std::string(class_name)]; });
}

void MemoryTrace::name_stack(StackId stack, std::string_view frames) noexcept {
  change([&] { names_.stacks[stack] = frames; });
}

void MemoryTrace::name_unit(UnitId unit, std::string_view name) noexcept {
  change([&] { names_.units[unit] = name; });
}

void MemoryTrace::set_fact(std::string_view key, std::string_view value) noexcept {
  change([&] { facts_[std::string(key)] = value; });
}

void MemoryTrace::record_unit(const UnitEvent& event) noexcept {
  change([&] { units_.push_back({event, events_.size()}); });
}

std::vector<TraceModule> MemoryTrace::modules() {
  std::vector<TraceModule> modules;
  modules.reserve(names_.modules.size());
  for (const auto& [id, module] : names_.modules) {
    modules.push_back({id, module.name, module.class_name});
  }
  return modules;
}

std::map<uint32_t, TraceTensor> MemoryTrace::tensors() {
  std::map<uint32_t, TraceTensor> tensors;
  for (const Names::Tensor& tensor : names_.tensors) {
    tensors[tensor.id] = {tensor.dtype, tensor.shape};
  }
  return tensors;
}

std::map<uint32_t, std::string> MemoryTrace::stacks() {
  std::map<uint32_t, std::string> stacks;
  for (const auto& [id, frames] : names_.stacks) stacks[id.value] = frames;
  return stacks;
}

std::vector<TraceUnitEvent> MemoryTrace::unit_events() {
  std::vector<TraceUnitEvent> events;
  events.reserve(units_.size());
  for (const auto& [event, after] : units_) events.push_back({after, event});
  // As in a file: after the same event, owned storages come before changes of units.
  std::stable_sort(
      events.begin(), events.end(), [](const TraceUnitEvent& a, const TraceUnitEvent& b) {
        const auto order = [](const TraceUnitEvent& each) {
          return std::pair(each.sequence, each.event.kind != UnitEventKind::StorageOwned);
        };
        return order(a) < order(b);
      });
  return events;
}

std::map<StorageId, std::string> MemoryTrace::parameters() {
  std::map<StorageId, std::string> parameters;
  for (const auto& [storage, module, name] : names_.owned) {
    const auto owner = names_.modules.find(module);
    const bool has_owner = owner != names_.modules.end() && !owner->second.name.empty();
    parameters.try_emplace(storage, has_owner ? owner->second.name + "." + name : name);
  }
  return parameters;
}

std::vector<PostMortem> MemoryTrace::failures() {
  std::vector<PostMortem> failures;
  failures.reserve(names_.failures.size());
  for (const auto& [id, failure] : names_.failures) failures.push_back(failure);
  return failures;
}

void MemoryTrace::visit_events(uint64_t first, uint64_t last, const VisitEvent& visit) {
  visit_trace_events(first, last, [&](const CodedEvent& traced, uint64_t sequence) {
    visit(traced.event, sequence);
  });
}

void MemoryTrace::visit_trace_events(uint64_t first, uint64_t last, const VisitCoded& visit) {
  first = std::max<uint64_t>(first, 1);
  last = std::min<uint64_t>(last, events_.size());
  for (uint64_t sequence = first; sequence <= last; ++sequence) {
    visit(events_[sequence - 1], sequence);
  }
}

void MemoryTrace::visit_batches(uint64_t last, const VisitBatch& visit) {
  const size_t count = std::min<uint64_t>(last, events_.size());
  if (count != 0) visit(std::span(events_).first(count), 1);
}

}  // namespace tidegauge
