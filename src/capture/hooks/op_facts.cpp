// SPDX-License-Identifier: BSD-3-Clause
#include "capture/hooks/op_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/flat_hash_map.h>

#include <vector>

namespace tidegauge {
namespace {

struct Ops {
  ska::flat_hash_map<const c10::FunctionSchema*, uint32_t> ids;  // a schema is never destroyed
  std::vector<std::string> names;  // by id - 1; copied, because an unloaded library has no schema
};
Ops& ops() {
  static auto* all = new Ops;
  return *all;
}

/// `torch.tensor` builds its tensor where we observe no op, and then calls lift_fresh. That call
/// counts as the birth.
bool is_lift_fresh(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema* lift =
      &c10::Dispatcher::singleton().findSchemaOrThrow("aten::lift_fresh", "").schema();
  return &schema == lift;
}

bool is_lazy_clone(const c10::FunctionSchema& schema) {
  static const c10::FunctionSchema* lazy_clone =
      &c10::Dispatcher::singleton().findSchemaOrThrow("aten::_lazy_clone", "").schema();
  return &schema == lazy_clone;
}

}  // namespace

OpFacts OpFacts::read(const c10::FunctionSchema& schema) {
  OpFacts facts{.schema = &schema, .returns_only_arguments = !schema.returns().empty()};
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto* alias = schema.returns()[i].alias_info();
    if (alias == nullptr) {
      facts.returns_only_arguments = false;
      facts.makes_storages = true;
      continue;
    }
    facts.returns_arguments = true;
    if (alias->isWrite() && i < 64) facts.written |= uint64_t{1} << i;
  }
  if (facts.written != 0) facts.returns_only_arguments = false;
  if (facts.returns_arguments && is_lift_fresh(schema)) {
    facts.returns_arguments = facts.returns_only_arguments = false;
    facts.makes_storages = true;
  }
  facts.is_lazy_clone = tidegauge::is_lazy_clone(schema);
  facts.only_makes = facts.makes_storages && !facts.needs_arguments();
  return facts;
}

OpId assign_op_id(const OpFacts& facts) {
  Ops& all = ops();
  const auto [entry, is_new] = all.ids.emplace(facts.schema, all.names.size() + 1);
  if (is_new) {
    all.names.push_back(facts.schema->name());
    const std::string& overload = facts.schema->overload_name();
    if (!overload.empty()) all.names.back() += "." + overload;
  }
  return facts.id = OpId(entry->second);
}

std::string op_name(OpId op) {
  return op.value - 1 < ops().names.size() ? ops().names[op.value - 1] : std::string();
}

}  // namespace tidegauge
