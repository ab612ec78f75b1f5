// SPDX-License-Identifier: BSD-3-Clause
#include "export/perfetto.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "analyze/settled_labels.h"
#include "core/events/category.h"
#include "core/events/steps_begun.h"
#include "core/modules/open_calls.h"
#include "export/nested_slices.h"

namespace tidegauge {
namespace {

/// Writes one trace as a process of the file.
class Process {
 public:
  Process(JsonWriter& out, Reader& reader, const PerfettoWriter::Source& source)
      : out_(out),
        source_(source),
        ops_(reader.ops()),
        slices_([&](ThreadId thread, const Slice& slice,
                    bool is_continued) { write_begin(thread, slice, is_continued); },
                [&](ThreadId thread) {
                  begin_event("E", thread);
                  out_.end_map();
                }) {
    for (TraceModule& module : reader.modules()) modules_[module.id.value] = std::move(module.name);
    write_name("process_name", {}, source_.name);
  }

  void apply(const Event& event, const std::optional<StorageChange>& change) {
    advance(event.time_ns);
    if (change) count(*change);
    const ThreadId thread = event.thread;
    switch (event.kind) {
      case EventKind::ModuleEnter:
        if (calls_.enter(event)) slices_.begin(thread, module_call(event));
        return;
      case EventKind::ModuleExit:
        if (const auto call = calls_.leave(event)) slices_.end(call->thread, module_call(event));
        return;
      case EventKind::OptimizerStepBegin:
        return slices_.begin(thread, {.kind = Slice::Kind::OptimizerStep});
      case EventKind::OptimizerStepEnd:
        return slices_.end(thread, {.kind = Slice::Kind::OptimizerStep});
      case EventKind::CollectiveBegin:
        return slices_.begin(thread, {Slice::Kind::Collective, {}, event.op.value});
      case EventKind::CollectiveEnd:
        return slices_.end(thread, {Slice::Kind::Collective, {}, event.op.value});
      case EventKind::StepMarker:
        step_ += steps_begun(event);
        return write_instant(thread, "step " + std::to_string(step_));
      case EventKind::AllocationFailed:
        return write_instant(thread, "allocation failed");
      default:
        return;
    }
  }

  void finish() { slices_.end_all(); }

 private:
  struct Counters {
    std::string device;
    CategorySplit split;
    int64_t total_bytes = 0;
  };

  static Slice module_call(const Event& event) {
    return {Slice::Kind::Module, event.phase, event.module.value};
  }

  /// A damaged file may contain any times.
  void advance(int64_t time_ns) {
    int64_t since_ns = 0;
    if (!__builtin_sub_overflow(time_ns, source_.begin_ns, &since_ns)) {
      now_ns_ = std::max(now_ns_, since_ns);
    }
  }

  void count(const StorageChange& change) {
    auto [entry, is_new] = counters_.try_emplace(change.device);
    Counters& counters = entry->second;
    if (is_new) counters.device = to_string(change.device);
    if (change.old_category == change.new_category && change.old_bytes == change.new_bytes) return;
    counters.split[change.old_category] -= change.old_bytes;
    counters.split[change.new_category] += change.new_bytes;
    if (change.old_category != change.new_category) write_counter(counters, change.old_category);
    write_counter(counters, change.new_category);
    if (change.old_bytes == change.new_bytes) return;
    counters.total_bytes += change.new_bytes - change.old_bytes;
    write_counter(counters.device + ": total", counters.total_bytes);
  }

  void write_counter(const Counters& counters, Category category) {
    write_counter(counters.device + ": " + std::string(to_string(category)),
                  counters.split[category]);
  }

  void write_counter(std::string_view name, int64_t size_bytes) {
    begin_event("C", {});
    put("name", name);
    out_.key("args");
    out_.begin_map();
    out_.key("bytes");
    out_.number(size_bytes);
    out_.end_map();
    out_.end_map();
  }

  void write_begin(ThreadId thread, const Slice& slice, bool is_continued) {
    if (threads_.insert(thread).second) {
      write_name("thread_name", thread, "thread " + std::to_string(thread.value));
    }
    begin_event("B", thread);
    put("name", describe(slice) + (is_continued ? " (continued)" : ""));
    out_.end_map();
  }

  std::string describe(const Slice& slice) const {
    if (slice.kind == Slice::Kind::OptimizerStep) return "optimizer step";
    if (slice.kind == Slice::Kind::Collective) {
      const auto op = ops_.find(OpId(slice.id));
      return op == ops_.end() ? "collective" : op->second;
    }
    const auto module = modules_.find(slice.id);
    std::string name =
        module == modules_.end() || module->second.empty() ? "(unnamed module)" : module->second;
    switch (slice.phase) {
      case Phase::Backward:
        return name + " backward";
      case Phase::Recompute:
        return name + " recompute";
      default:
        return name;
    }
  }

  void write_instant(ThreadId thread, const std::string& name) {
    begin_event("i", thread);
    put("name", name);
    put("s", "p");  // draws a line across the whole process
    out_.end_map();
  }

  void write_name(std::string_view what, ThreadId thread, const std::string& name) {
    begin_event("M", thread);
    put("name", what);
    out_.key("args");
    out_.begin_map();
    put("name", name);
    out_.end_map();
    out_.end_map();
  }

  void begin_event(std::string_view kind, ThreadId thread) {
    out_.begin_map();
    put("ph", kind);
    out_.key("pid");
    out_.number(source_.process);
    out_.key("tid");
    out_.number(thread.value);
    out_.key("ts");
    out_.thousandths(now_ns_);
  }

  void put(std::string_view key, std::string_view value) {
    out_.key(key);
    out_.text(value);
  }

  JsonWriter& out_;
  const PerfettoWriter::Source& source_;
  std::map<OpId, std::string> ops_;
  std::map<uint32_t, std::string> modules_;
  OpenCalls calls_;
  NestedSlices slices_;
  std::map<Device, Counters> counters_;
  std::set<ThreadId> threads_;
  int64_t now_ns_ = 0;
  uint64_t step_ = 0;
};

}  // namespace

PerfettoWriter::PerfettoWriter(Sink sink) : out_(std::move(sink)) {
  out_.begin_map();
  out_.key("displayTimeUnit");
  out_.text("ns");
  out_.key("traceEvents");
  out_.begin_list();
}

void PerfettoWriter::add(Reader& reader, const Source& source, const Progress& progress) {
  const trace::Passes passes(progress, reader.event_count(), 2);
  const SettledLabels labels = learn_labels(reader, passes);

  Process process(out_, reader, source);
  SettledStorages storages(labels);
  reader.visit_events(1, UINT64_MAX, [&](const Event& event, uint64_t sequence) {
    process.apply(event, storages.apply(event));
    passes.report(sequence, 1);
  });
  process.finish();
}

void PerfettoWriter::finish() {
  out_.end_list();
  out_.end_map();
  out_.finish();
}

}  // namespace tidegauge
