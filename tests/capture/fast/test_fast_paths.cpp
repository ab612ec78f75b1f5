// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/fast/fast_paths.h"
#include "capture/hooks/fast_switch.h"
#include "capture/hooks/moment_facts.h"
#include "capture/hooks/running_node.h"
#include "capture/storages/capture_listener.h"
#include "capture/storages/capture_log.h"
#include "capture/storages/storage_registry.h"
#include "tidegauge/threads.h"

namespace tidegauge {
namespace {

/// The notifications that capture sends to its only listener. Ids are numbered in the order of
/// their appearance.
class Listener final : public CaptureListener {
 public:
  Listener() {
    state_.is_started = true;
    state_.log = &log_;
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().add(this);
  }
  ~Listener() {
    const auto lock = StorageRegistry::lock();
    StorageRegistry::get().listeners().remove(this);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void storage_born(const ObservedStorage& observed, uint8_t facts, OpId op) override {
    RegisteredStorage record;
    record.id = observed.id;
    record.size_bytes = observed.size_bytes;
    record.device = observed.device;
    log_.grow();
    log_.append_birth(record, nullptr, facts, op, moment::stream());
  }
  void storage_found(const ObservedStorage& observed, uint8_t facts, OpId) override {
    write_log();
    if (numbers_.contains(observed.id)) return;  // a listener ignores a storage that it knows
    storage_born(observed, facts, {});
  }
  void storage_freed(StorageId id, bool by_backward) override {
    log_.grow();
    log_.append_free(id, by_backward);
  }
  void storage_resized(StorageId id, int64_t size_bytes, StorageId) override {
    write_log();
    add("resized", id, {size_bytes});
  }
  void make_room() override {
    write_log();
    log_.grow();
  }
  void memory_allocated(StorageId, Device, int64_t) override {}
  void node_runs(int task, const torch::autograd::Node& node) override {
    if (tasks_.insert(task).second) {  // as every listener must: autograd keeps it to the end
      torch::autograd::Engine::get_default_engine().queue_callback([end = BackwardEnd()] {});
    }
    // A freed node's address may be used again, its number is not.
    const std::pair now(&node, node.sequence_nr());
    place(now == last_node_ ? "" : "node");
    last_node_ = now;
  }
  void thread_left_backward() override {
    place(last_node_.first == nullptr ? "" : "outside");
    last_node_ = {};
  }
  bool knows_parameter(const at::Tensor&) override { return true; }
  bool learn_parameter(const at::Tensor&) override { return false; }
  void gradient_accumulated(StorageId id) override {
    write_log();
    add("gradient", id, {});
  }
  FailureReport allocation_failed(const FailedAllocation&, OpId, const std::string&) override {
    return {};
  }
  std::shared_ptr<CaptureListener> keep_alive() override { return nullptr; }

  std::string lines() {
    const auto lock = StorageRegistry::lock();
    write_log();
    return lines_;
  }

 private:
  void place(const std::string& line) {
    write_log();
    if (!line.empty()) lines_ += line + "\n";
  }
  /// Writes the births and frees of the log, and the labels that their conditions cause.
  void write_log() {
    log_.backlog().follow([](const Event&, const OpenCalls&) {});
    log_.backlog().apply_to(ledger_, [&](const Event& event) {
      add("event " + std::to_string(static_cast<int>(event.kind)), event.storage,
          {event.size_bytes, event.birth_facts, event.op.value, static_cast<int64_t>(event.role)});
    });
  }
  void add(const std::string& what, StorageId id, const std::vector<int64_t>& facts) {
    const auto number = numbers_.try_emplace(id, numbers_.size()).first->second;
    std::string line = what;
    line.append(" ").append(std::to_string(number));
    for (const int64_t fact : facts) line.append(" ").append(std::to_string(fact));
    lines_ += line + "\n";
  }
  CaptureLog log_;
  Ledger ledger_;
  std::string lines_;
  std::map<StorageId, size_t> numbers_;
  std::set<int> tasks_;
  std::pair<const torch::autograd::Node*, uint64_t> last_node_{};
};

void train() {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::ReLU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                              torch::nn::Linear(8, 4));
  torch::optim::SGD optimizer(model->parameters(),
                              /*lr=*/0.1);  // Adam frees its states in any order
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model->forward(torch::ones({2, 8})).sum().backward();
    optimizer.step();
  }
}

void use_views_and_foreign_memory() {
  float values[8] = {};
  const at::Tensor foreign = torch::from_blob(values, 8);
  const at::Tensor before = torch::ones({4, 4});
  at::Tensor x = foreign.view({2, 4}).t() + before.narrow(0, 0, 4).narrow(1, 0, 2);
  x.add_(1).mul_(2);
  x.resize_({64});
  x = torch::cat({x, x}).split(32)[1].clone();
  EXPECT_ANY_THROW(torch::mm(before, torch::ones({3, 3})));
  const at::Tensor meta = torch::empty(4, torch::kMeta) + 1;
}

/// One event per line.
std::string log_events(void (*program)()) {
  attach_thread();
  Listener log;
  program();
  detach_thread();
  return log.lines();
}

class FastPaths : public testing::TestWithParam<void (*)()> {
 protected:
  ~FastPaths() override { enable_fast_paths(true); }
};

TEST_P(FastPaths, GeneralPathAloneReportsTheSame) {
  log_events(GetParam());  // numbers the ops
  const auto fast_lines = log_events(GetParam());
  enable_fast_paths(false);
  EXPECT_EQ(log_events(GetParam()), fast_lines);
  EXPECT_GT(std::count(fast_lines.begin(), fast_lines.end(), '\n'), 5);
}

TEST_P(FastPaths, EachPathMayBeMissing) {
  log_events(GetParam());
  const auto all = log_events(GetParam());
  for (int i = 0; i < fast::kPathCount; ++i) {
    fast::set_enabled(static_cast<fast::Path>(i), false);
    EXPECT_EQ(log_events(GetParam()), all) << "without path " << i;
    fast::set_enabled(static_cast<fast::Path>(i), true);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, FastPaths,
                         testing::Values(&train, &use_views_and_foreign_memory));

}  // namespace
}  // namespace tidegauge
