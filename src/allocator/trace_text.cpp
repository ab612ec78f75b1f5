// SPDX-License-Identifier: BSD-3-Clause
#include "allocator/trace_text.h"

#include <optional>
#include <sstream>
#include <string>

#include "tidegauge/errors.h"

namespace tidegauge {
namespace {

constexpr std::string_view kEventLetters = "arcAFMUOX";  // in the order of TraceAction
static_assert(kEventLetters.size() == kTraceActionCount);

std::optional<BlockUse> parse_use(const std::string& text) {
  if (text == "active_allocated") return BlockUse::Allocated;
  if (text == "active_pending_free") return BlockUse::PendingFree;
  if (text == "inactive") return BlockUse::Free;
  return std::nullopt;
}

std::optional<SegmentState> parse_segment(std::istream& fields) {
  SegmentState segment;
  std::string pool;
  fields >> segment.address >> segment.size_bytes >> segment.stream >> pool;
  if (!fields || (pool != "small" && pool != "large")) return std::nullopt;
  segment.is_small = pool == "small";
  return segment;
}

class TextReader {
 public:
  bool read(const std::string& line) {
    std::istringstream fields(line);
    std::string kind;
    if (!(fields >> kind) || kind[0] == '#') return true;
    if (kind.size() != 1) return false;
    const size_t action = kEventLetters.find(kind[0]);
    if (action != std::string_view::npos) {
      TraceEvent event{.action = static_cast<TraceAction>(action), .pool = {}};
      fields >> event.address >> event.size_bytes >> event.stream;
      text_.trace.events.push_back(event);
      return static_cast<bool>(fields);
    }
    switch (kind[0]) {
      case 'S':
        return add_segment(text_.initial_layout, fields);
      case 's':
        return add_segment(text_.trace.final_layout, fields);
      case 'B':
        return add_initial_block(fields);
      case 'b':
        return add_final_block(fields);
      case 'E':
        return static_cast<bool>(fields >> text_.final_reserved_bytes >> text_.final_active_bytes);
      default:
        return false;
    }
  }

  TextTrace finish() {
    place_blocks(text_.initial_layout, std::move(initial_blocks_));
    return std::move(text_);
  }

 private:
  static bool add_segment(Layout& layout, std::istream& fields) {
    std::optional<SegmentState> segment = parse_segment(fields);
    if (segment) layout.push_back(std::move(*segment));
    return segment.has_value();
  }

  bool add_initial_block(std::istream& fields) {
    BlockState block{.use = BlockUse::Allocated};
    fields >> block.address >> block.size_bytes >> block.requested_bytes;
    initial_blocks_.push_back(block);
    return static_cast<bool>(fields);
  }

  bool add_final_block(std::istream& fields) {
    BlockState block;
    std::string state;
    fields >> block.address >> block.size_bytes >> block.requested_bytes >> state;
    const std::optional<BlockUse> use = parse_use(state);
    if (!fields || !use || text_.trace.final_layout.empty()) return false;
    block.use = *use;
    // torch leaves the size of the previous request in free blocks.
    if (block.use == BlockUse::Free) block.requested_bytes = 0;
    text_.trace.final_layout.back().blocks.push_back(block);
    return true;
  }

  TextTrace text_;
  std::vector<BlockState> initial_blocks_;
};

}  // namespace

TextTrace read_text_trace(std::istream& input) {
  TextReader reader;
  std::string line;
  for (size_t number = 1; std::getline(input, line); ++number) {
    if (!reader.read(line)) {
      throw FormatError("line " + std::to_string(number) + " of the trace is invalid: '" + line +
                        "'");
    }
  }
  return reader.finish();
}

}  // namespace tidegauge
