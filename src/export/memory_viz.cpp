// SPDX-License-Identifier: BSD-3-Clause
#include "export/memory_viz.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "allocator/caching_allocator.h"
#include "export/allocation_plan.h"
#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

// JavaScript numbers are doubles: integers are exact up to 2^53.
constexpr int64_t kMaxAddress = int64_t{1} << 53;

constexpr std::string_view to_state(BlockUse use) {
  switch (use) {
    case BlockUse::Allocated:
      return "active_allocated";
    case BlockUse::PendingFree:
      return "active_pending_free";
    default:
      return "inactive";
  }
}

/// Describes an allocation as stack frames: first what was allocated, then where.
class Frames {
 public:
  /// The ids of values shared within the file start at `first_id`.
  Frames(Reader& reader, uint64_t first_id)
      : ops_(reader.ops()),
        tensors_(reader.tensors()),
        stacks_(reader.stacks()),
        next_id_(first_id) {
    for (TraceModule& module : reader.modules()) modules_[module.id] = std::move(module);
  }

  void write(ValueWriter& out, PlannedAllocation facts) {
    facts.category = {};
    facts.stream = 0;
    const auto [known, is_new] = ids_.try_emplace(facts, next_id_);
    next_id_ += is_new ? 1 : 0;
    out.shared(known->second, [&] { write_list(out, facts); });
  }

  uint64_t next_id() const { return next_id_; }

 private:
  void write_list(ValueWriter& out, const PlannedAllocation& facts) const {
    out.begin_list();
    const auto op = ops_.find(facts.op);
    const auto tensor = tensors_.find(facts.tensor);
    if (op != ops_.end() || tensor != tensors_.end()) {
      const std::string what =
          tensor == tensors_.end() ? "" : tensor->second.dtype + " " + tensor->second.shape;
      write_frame(out, what, 0, op == ops_.end() ? "tensor" : op->second);
    }
    const auto module = modules_.find(facts.module);
    if (module != modules_.end()) {
      write_frame(out, module->second.class_name, 0, module->second.name);
    }
    const auto stack = stacks_.find(facts.stack);
    if (stack != stacks_.end()) write_stack(out, stack->second);
    out.end_list();
  }

  /// `frames`: lines like `train.py:12 main`, or names of modules.
  static void write_stack(ValueWriter& out, std::string_view frames) {
    while (!frames.empty()) {
      const std::string_view line = frames.substr(0, frames.find('\n'));
      frames.remove_prefix(std::min(frames.size(), line.size() + 1));
      const size_t space = line.find(' ', std::min(line.size(), line.rfind(':')));
      const size_t colon = line.substr(0, space).rfind(':');
      int64_t number = 0;
      if (space == std::string_view::npos || colon == std::string_view::npos ||
          std::from_chars(&line[colon + 1], &line[space], number).ptr != &line[space]) {
        write_frame(out, "", 0, line);
      } else {
        write_frame(out, line.substr(0, colon), number, line.substr(space + 1));
      }
    }
  }

  static void write_frame(ValueWriter& out, std::string_view file, int64_t line,
                          std::string_view name) {
    out.begin_map();
    out.key("filename");
    out.text(file);
    out.key("line");
    out.number(line);
    out.key("name");
    out.text(name);
    out.end_map();
  }

  std::map<ModuleId, TraceModule> modules_;
  std::map<OpId, std::string> ops_;
  std::map<uint32_t, TraceTensor> tensors_;
  std::map<uint32_t, std::string> stacks_;
  std::map<PlannedAllocation, uint64_t> ids_;
  uint64_t next_id_;
};

/// The final state of a device, for the list of segments.
struct Ending {
  uint32_t number = 0;
  Layout layout;
  std::map<int64_t, PlannedAllocation> alive;  // by address
  std::unique_ptr<Frames> frames;
};

}  // namespace

class MemoryVizWriter::Impl {
 public:
  Impl(ValueWriter& out, const std::string& settings)
      : out_(out), settings_(settings), config_(parse_alloc_config(settings)) {
    config_.per_process_memory_fraction = 1;  // no limit: the device's memory is unknown
    out_.begin_map();
    out_.key("device_traces");
    out_.begin_list();
  }

  void add(Reader& reader, const Source& source, const Progress& progress) {
    const AllocationPlan plan = plan_allocations(reader, source.device, progress);
    for (; next_number_ < source.number; ++next_number_) {
      out_.begin_list();
      out_.end_list();
    }
    ++next_number_;
    const uint64_t first_id = endings_.empty() ? 0 : endings_.back().frames->next_id();
    endings_.push_back({source.number, {}, {}, std::make_unique<Frames>(reader, first_id)});
    write_trace(plan, source, endings_.back());
  }

  void finish() {
    out_.end_list();
    out_.key("segments");
    out_.begin_list();
    for (const Ending& ending : endings_) {
      for (const SegmentState& segment : ending.layout) write_segment(segment, ending);
    }
    out_.end_list();
    out_.key("allocator_settings");
    out_.begin_map();
    put("PYTORCH_CUDA_ALLOC_CONF", settings_);
    out_.key("expandable_segments");
    out_.boolean(config_.expandable_segments);
    out_.end_map();
    out_.key("external_annotations");
    out_.begin_list();
    out_.end_list();
    out_.end_map();
    out_.finish();
  }

 private:
  void write_trace(const AllocationPlan& plan, const Source& source, Ending& ending) {
    int64_t clock_ns = source.begin_ns;
    int64_t time_ns = 0;
    AllocatorOptions options;
    options.config = config_;
    options.on_segment_event = [&](const TraceEvent& event) {
      begin_event(to_string(event.action), event.address, event.size_bytes, event.stream, time_ns);
      put("category", "unknown");
      out_.end_map();
    };
    CachingAllocator allocator(std::move(options));
    std::vector<Block*> blocks(plan.allocations.size(), nullptr);
    out_.begin_list();
    for (const PlannedRequest& request : plan.requests) {
      const PlannedAllocation& facts = plan.allocations[request.allocation];
      clock_ns = std::max(clock_ns, request.time_ns);  // requests before the first op have no time
      if (__builtin_add_overflow(clock_ns, source.epoch_shift_ns, &time_ns)) time_ns = 0;
      Block*& block = blocks[request.allocation];
      if (request.size_bytes == 0) {
        for (const TraceAction action : {TraceAction::FreeRequested, TraceAction::FreeCompleted}) {
          begin_event(to_string(action), block->address, block->requested_bytes, facts.stream,
                      time_ns);
          out_.end_map();
        }
        allocator.free(std::exchange(block, nullptr));
        continue;
      }
      check_fits(request.size_bytes);
      block = allocator.malloc(request.size_bytes, facts.stream);
      check_fits(block->address + block->size_bytes);
      begin_event(to_string(TraceAction::Alloc), block->address, request.size_bytes, facts.stream,
                  time_ns);
      put("category", to_string(facts.category));
      out_.key("frames");
      ending.frames->write(out_, facts);
      out_.end_map();
    }
    out_.end_list();
    ending.layout = allocator.layout();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] != nullptr) ending.alive[blocks[i]->address] = plan.allocations[i];
    }
  }

  static void check_fits(int64_t bytes) {
    if (bytes <= kMaxAddress) return;
    throw NotSupported("the run used " + std::to_string(bytes) +
                       " bytes of addresses, but memory_viz is limited to 2^53; export to csv, json"
                       " or perfetto");
  }

  void begin_event(std::string_view action, int64_t address, int64_t size_bytes, int64_t stream,
                   int64_t time_ns) {
    out_.begin_map();
    put("action", action);
    put("addr", address);
    put("size", size_bytes);
    put("stream", stream);
    put("time_us", time_ns / 1000);
    out_.key("pool_id");
    out_.pair(0, 0);
  }

  void write_segment(const SegmentState& segment, const Ending& ending) {
    int64_t active_bytes = 0;
    int64_t requested_bytes = 0;
    for (const BlockState& block : segment.blocks) {
      active_bytes += block.use == BlockUse::Free ? 0 : block.size_bytes;
      requested_bytes += block.requested_bytes;
    }
    out_.begin_map();
    put("device", ending.number);
    put("address", segment.address);
    put("total_size", segment.size_bytes);
    put("allocated_size", active_bytes);  // no block waits for another stream
    put("active_size", active_bytes);
    put("requested_size", requested_bytes);
    put("stream", segment.stream);
    put("segment_type", segment.is_small ? "small" : "large");
    out_.key("segment_pool_id");
    out_.pair(segment.pool.first, segment.pool.second);
    out_.key("is_expandable");
    out_.boolean(segment.is_expandable);
    out_.key("frames");
    out_.begin_list();
    out_.end_list();
    out_.key("blocks");
    out_.begin_list();
    for (const BlockState& block : segment.blocks) write_block(block, ending);
    out_.end_list();
    out_.end_map();
  }

  void write_block(const BlockState& block, const Ending& ending) {
    out_.begin_map();
    put("address", block.address);
    put("size", block.size_bytes);
    put("requested_size", block.requested_bytes);
    put("state", to_state(block.use));
    out_.key("frames");
    const auto alive = ending.alive.find(block.address);
    if (alive != ending.alive.end()) {
      ending.frames->write(out_, alive->second);
    } else {
      out_.begin_list();
      out_.end_list();
    }
    out_.end_map();
  }

  void put(std::string_view key, std::string_view value) {
    out_.key(key);
    out_.text(value);
  }
  void put(std::string_view key, const char* value) { put(key, std::string_view(value)); }
  void put(std::string_view key, int64_t value) {
    out_.key(key);
    out_.number(value);
  }

  ValueWriter& out_;
  std::string settings_;
  AllocConfig config_;
  uint32_t next_number_ = 0;
  std::vector<Ending> endings_;
};

MemoryVizWriter::MemoryVizWriter(ValueWriter& out, const std::string& settings)
    : impl_(std::make_unique<Impl>(out, settings)) {}
MemoryVizWriter::~MemoryVizWriter() = default;

void MemoryVizWriter::add(Reader& reader, const Source& source, const Progress& progress) {
  impl_->add(reader, source, progress);
}

void MemoryVizWriter::finish() { impl_->finish(); }

}  // namespace tidegauge
