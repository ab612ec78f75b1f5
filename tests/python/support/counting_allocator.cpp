// SPDX-License-Identifier: BSD-3-Clause
// A CPU allocator that counts. It shares no code and no mechanism with tidegauge, so that the two
// can be checked against each other. It passes on the pointers of the allocator it replaces and
// only replaces the deleter, so context == data still holds, as raw_allocate requires.
//
// A kernel may allocate and free memory that belongs to no tensor (workspace). To separate it from
// storages, the live bytes are also read at the end of every operator that no kernel called: no
// workspace is live then, so that peak contains only storages. The 8 bytes of a Python number while
// it is an operator's argument (or saved for backward) do not count as a storage.
//
// A probe returns the live bytes that a tracker reports. It is called at each event at which the
// two must agree: before an allocation and after a free.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <Python.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Block {
  int64_t size_bytes;
  int64_t serial;
  bool is_number = false;
};

// One line of the log: `serial` counts allocations from the start of the log. A negative size is a
// free; the serial of a block from before the log is -1.
struct LogLine {
  int64_t serial;
  int64_t size_bytes;
};

struct Counts {
  std::mutex mutex;
  std::unordered_map<void*, Block> blocks;
  int64_t live_bytes = 0;
  int64_t number_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t op_end_peak_bytes = 0;
  int64_t allocations = 0;
  bool is_logging = false;
  int64_t log_start = 0;
  std::vector<LogLine> log;
  std::string op_of_peak;
  int64_t (*probe)() = nullptr;
  int64_t probed = 0;
  int64_t disagreements = 0;
  int64_t first_believed_bytes = 0;
  int64_t first_live_bytes = 0;
};

// Leaked, because blocks may outlive everything else.
Counts& counts() {
  static auto* instance = new Counts;
  return *instance;
}

struct RunningOp {
  const char* name;
  bool is_called_by_a_kernel;
};

thread_local std::vector<RunningOp> running_ops;

// The operator whose kernel runs, not the operators that the kernel calls.
const char* running_op() {
  for (auto op = running_ops.rbegin(); op != running_ops.rend(); ++op) {
    if (!op->is_called_by_a_kernel) return op->name;
  }
  return "";
}

// Called without the lock: the probe may allocate or free, but is not called for that.
void ask_probe() {
  Counts& c = counts();
  static thread_local bool is_asking = false;
  if (c.probe == nullptr || is_asking) return;
  is_asking = true;
  // Memory is also freed while a Python exception propagates, and the probe is Python code.
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const int64_t believed_bytes = c.probe();
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
  is_asking = false;
  const std::lock_guard lock(c.mutex);
  ++c.probed;
  if (believed_bytes == c.live_bytes || c.disagreements++ > 0) return;
  c.first_believed_bytes = believed_bytes;
  c.first_live_bytes = c.live_bytes;
}

void count_allocation(void* data, int64_t size_bytes) {
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  c.blocks[data] = {size_bytes, c.allocations};
  if (c.is_logging) c.log.push_back({c.allocations - c.log_start, size_bytes});
  ++c.allocations;
  c.live_bytes += size_bytes;
  if (c.live_bytes > c.peak_bytes) {
    c.peak_bytes = c.live_bytes;
    c.op_of_peak = running_op();
  }
}

void free_block(void* data) {
  {
    Counts& c = counts();
    const std::lock_guard lock(c.mutex);
    if (const auto found = c.blocks.find(data); found != c.blocks.end()) {
      const auto [size_bytes, serial, is_number] = found->second;
      if (c.is_logging) {
        c.log.push_back({serial < c.log_start ? -1 : serial - c.log_start, -size_bytes});
      }
      c.live_bytes -= size_bytes;
      if (is_number) c.number_bytes -= size_bytes;
      c.blocks.erase(found);
    }
  }
  ask_probe();
  c10::GetDefaultCPUAllocator()->raw_deallocate(data);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    ask_probe();
    void* data = c10::GetDefaultCPUAllocator()->raw_allocate(size_bytes);
    if (data != nullptr) count_allocation(data, static_cast<int64_t>(size_bytes));
    return {data, data, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    default_copy_data(to, from, size_bytes);
  }
};

constexpr uint8_t kPriority = 100;
c10::Allocator* replaced = nullptr;
at::CallbackHandle callback = 0;

// Kernels run below autograd. So do factories (torch.ones) called from Python, but no other
// operator calls them.
bool is_called_by_a_kernel() {
  return !running_ops.empty() &&
         c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
}

void mark_number(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  const auto found = c.blocks.find(const_cast<void*>(tensor.const_data_ptr()));
  if (found == c.blocks.end() || found->second.is_number) return;
  found->second.is_number = true;
  c.number_bytes += found->second.size_bytes;
}

std::unique_ptr<at::ObserverContext> on_op_begin(const at::RecordFunction& function) {
  const bool is_inner = is_called_by_a_kernel();
  if (!is_inner) {
    for (const c10::IValue& input : function.inputs()) {
      if (input.isTensor()) mark_number(input.toTensor());
    }
  }
  running_ops.push_back({function.name(), is_inner});
  return nullptr;
}

void on_op_end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  if (!running_ops.empty()) running_ops.pop_back();
  if (is_called_by_a_kernel()) return;
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  c.op_end_peak_bytes = std::max(c.op_end_peak_bytes, c.live_bytes - c.number_bytes);
}

}  // namespace

extern "C" {

void counting_install() {
  if (replaced != nullptr) return;
  static auto* allocator = new CountingAllocator;
  replaced = c10::GetAllocator(c10::kCPU);
  c10::SetAllocator(c10::kCPU, allocator, kPriority);
  callback = at::addGlobalCallback(at::RecordFunctionCallback(&on_op_begin, &on_op_end)
                                       .needsInputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
}

void counting_uninstall() {
  if (replaced == nullptr) return;
  c10::SetAllocator(c10::kCPU, replaced, kPriority);
  at::removeCallback(callback);
  replaced = nullptr;
}

void counting_restart() {
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  c.peak_bytes = c.live_bytes;
  c.op_end_peak_bytes = c.live_bytes - c.number_bytes;
  c.op_of_peak.clear();
  c.log_start = c.allocations;
  c.log.clear();
  c.probed = 0;
  c.disagreements = 0;
}

void counting_set_logging(bool on) {
  const std::lock_guard lock(counts().mutex);
  counts().is_logging = on;
}

/// Writes: live bytes, live bytes without numbers, peak, peak at the ends of operators, allocations
/// since the restart, lines of the log.
void counting_read(int64_t* to) {
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  to[0] = c.live_bytes;
  to[1] = c.live_bytes - c.number_bytes;
  to[2] = c.peak_bytes;
  to[3] = c.op_end_peak_bytes;
  to[4] = c.allocations - c.log_start;
  to[5] = static_cast<int64_t>(c.log.size());
}

void counting_read_log(int64_t* to) {
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  for (const LogLine& line : c.log) {
    *to++ = line.serial;
    *to++ = line.size_bytes;
  }
}

void counting_set_probe(int64_t (*probe)()) {
  const std::lock_guard lock(counts().mutex);
  counts().probe = probe;
}

/// Writes: number of probe calls, number of wrong answers, the first wrong answer, and the live
/// bytes at that moment.
void counting_read_probe(int64_t* to) {
  Counts& c = counts();
  const std::lock_guard lock(c.mutex);
  to[0] = c.probed;
  to[1] = c.disagreements;
  to[2] = c.first_believed_bytes;
  to[3] = c.first_live_bytes;
}

/// Valid until the next call.
const char* counting_op_of_peak() {
  static std::string copy;
  const std::lock_guard lock(counts().mutex);
  copy = counts().op_of_peak;
  return copy.c_str();
}

}  // extern "C"
