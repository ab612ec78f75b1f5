// SPDX-License-Identifier: BSD-3-Clause
//
// The cost of MemTracker in a libtorch program, measured like benchmarks/measure.py: thread CPU
// time, variants take turns within each round, medians of ratios. Turns are short, so each round
// has several of each variant; otherwise a slow moment of the machine could affect only one of
// them. Prints JSON for benchmarks/run.py.
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#ifdef TIDEGAUGE_FAST_PATHS
#include "capture/fast/fast_paths.h"
#endif
#include "tidegauge/tidegauge.h"

namespace {

#ifdef TIDEGAUGE_FAST_PATHS
namespace fast = tidegauge::fast;
#endif

constexpr int kWarmUp = 5;
constexpr int kSteps = 20;
constexpr int kTurns = 10;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// One training step of 20 x (Linear(16, 16), ReLU), batch 16, SGD.
class TinyMlp {
 public:
  /// A program that does not use tidegauge.
  void step_plainly() {
    optimizer_.zero_grad();
    model_->forward(x_).sum().backward();
    optimizer_.step();
  }
  void step_in_scopes() {
    optimizer_.zero_grad();
    tidegauge::call_sequential(model_, x_).sum().backward();
    tidegauge::step(optimizer_);
  }
  double seconds_plain();
  double seconds_in_scopes();
  double seconds_tracked();

 private:
  static torch::nn::Sequential make_model() {
    torch::nn::Sequential model;
    for (int i = 0; i < 20; ++i) {
      model->push_back(torch::nn::Linear(16, 16));
      model->push_back(torch::nn::ReLU());
    }
    return model;
  }

  torch::nn::Sequential model_ = make_model();
  torch::optim::SGD optimizer_{model_->parameters(), 0.01};
  const torch::Tensor x_ = torch::randn({16, 16});
};

/// Seconds of kSteps steps, after a few warm-up steps.
template <typename Step>
double seconds(Step step) {
  for (int i = 0; i < kWarmUp; ++i) step();
  const double start = thread_seconds();
  for (int i = 0; i < kSteps; ++i) step();
  return thread_seconds() - start;
}

double TinyMlp::seconds_plain() {
  return seconds([&] { step_plainly(); });
}

double TinyMlp::seconds_in_scopes() {
  return seconds([&] { step_in_scopes(); });
}

double TinyMlp::seconds_tracked() {
  tidegauge::MemTracker tracker;
  tracker.track_external(model_, optimizer_, x_);
  tracker.enter();
  const double tracked = seconds_in_scopes();
  tracker.exit();
  if (tracker.anomaly_count() + tracker.failure_count() > 0) {
    std::cerr << tracker.first_anomaly() << tracker.first_failure() << '\n';
    std::exit(1);
  }
  return tracked;
}

struct Variant {
  std::string name;
  std::function<double()> seconds;
  std::string bar;  // JSON
  double round_seconds = 0;
  std::vector<double> ratios = {};
};

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): an exception ends the benchmark with its message
int main(int argc, char** argv) {
  const auto rounds = static_cast<int>(argc > 1 ? std::strtol(argv[1], nullptr, 10) : 21);
  at::set_num_threads(1);
  torch::manual_seed(0);
  TinyMlp mlp;
  std::vector<Variant> variants{
      {"scopes without a tracker", [&] { return mlp.seconds_in_scopes(); }, "null"},
      {"tidegauge", [&] { return mlp.seconds_tracked(); }, "1.12"},
  };
#ifdef TIDEGAUGE_FAST_PATHS
  // How much each fast path saves (src/capture/fast/README.md).
  const std::pair<fast::Path, const char*> paths[] = {
      {fast::Path::TypedHandlers, "without typed handlers"},
      {fast::Path::KnownMemory, "without known memory"},
      {fast::Path::NodeCache, "without the node cache"},
      {fast::Path::SoleListener, "without the sole listener"},
  };
  for (const auto& [path, name] : paths) {
    const auto run_without = [&mlp, path = path] {
      fast::set_enabled(path, false);
      const double tracked = mlp.seconds_tracked();
      fast::set_enabled(path, true);
      return tracked;
    };
    variants.push_back({name, run_without, "null"});
  }
#endif

  std::vector<double> plains;
  std::vector<double> spreads;
  mlp.seconds_plain();
  for (int round = 0; round < rounds; ++round) {
    double plain = 0;
    double plain_again = 0;
    for (Variant& variant : variants) variant.round_seconds = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      plain += mlp.seconds_plain();
      for (Variant& variant : variants) variant.round_seconds += variant.seconds();
      plain_again += mlp.seconds_plain();
    }
    for (Variant& variant : variants) variant.ratios.push_back(variant.round_seconds / plain);
    plains.push_back(plain);
    spreads.push_back(std::abs(plain_again / plain - 1));
  }
  std::cout << '[';
  for (const Variant& variant : variants) {
    std::cout << (&variant == variants.data() ? "" : ",")
              << "{\"case\": \"MemTracker in C++, MLP of 20 x (Linear(16, 16), ReLU), batch 16, "
                 "SGD\", \"variant\": \""
              << variant.name << "\", \"ratio\": " << median(variant.ratios)
              << ", \"spread\": " << median(spreads)
              << ", \"plain_us\": " << median(plains) / (kTurns * kSteps) * 1e6
              << ", \"bar\": " << variant.bar << "}";
  }
  std::cout << "]\n";
}
