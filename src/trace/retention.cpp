// SPDX-License-Identifier: BSD-3-Clause
#include "trace/retention.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include "trace/steady_clock.h"

namespace tidegauge::trace {
namespace {

/// Events wait for this time, which is less than the usual delay of a write.
constexpr int64_t kSliceNs = 100'000'000;
constexpr int64_t kRetryNs = 10'000'000'000;

}  // namespace

bool Retention::is_due(const TraceWriter& writer) {
  const int64_t now_ns = steady_ns();
  if (!has_begun_) {
    has_begun_ = true;
    begin_ns_ = now_ns;
  }
  if (now_ns < next_try_ns_) return false;
  return keep_.steps > 0 ? writer.step() - begin_step_ >= 2 * keep_.steps
                         : now_ns - begin_ns_ >= 2 * keep_.time_ns;
}

void Retention::advance(std::unique_ptr<TraceWriter>& writer) {
  if (!keep_.is_limited()) return;
  if (!compaction_ && !is_due(*writer)) return;
  try {
    if (writer->is_replaced()) return compaction_.reset();  // the path is another file's
    if (!compaction_) {
      compaction_.emplace(*writer, keep_, steady_ns());
      // What is kept now is what will be kept after the next time.
      begin_ns_ = steady_ns() - keep_.time_ns;
      begin_step_ = writer->step() - keep_.steps;
    }
    if (compaction_->advance(steady_ns() + kSliceNs)) replace(writer);
  } catch (const std::exception&) {
    compaction_.reset();
    next_try_ns_ = steady_ns() + std::min(kRetryNs, std::max(keep_.time_ns, kSliceNs));
  }
}

void Retention::replace(std::unique_ptr<TraceWriter>& writer) {
  std::unique_ptr<TraceWriter> copy = compaction_->finish();
  compaction_.reset();
  try {
    copy->move_to(writer->path());
  } catch (...) {
    ::unlink(copy->path().c_str());
    throw;
  }
  writer = std::move(copy);
}

}  // namespace tidegauge::trace
