// SPDX-License-Identifier: BSD-3-Clause
//
// Prints which modules run, and when, in one training step of a libtorch program.
#include <torch/torch.h>

#include <iostream>

#include "tidegauge/tidegauge.h"

using tidegauge::Tracked;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    hidden = register_module("hidden", Tracked<torch::nn::Linear>(16, 32));
    out = register_module("out", Tracked<torch::nn::Linear>(32, 1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }

  Tracked<torch::nn::Linear> hidden{nullptr};
  Tracked<torch::nn::Linear> out{nullptr};
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(0);
  Tracked<Net> net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  tidegauge::ModTracker tracker;
  const auto print = [&](const char* what, const torch::nn::Module* module) {
    std::cout << what << tracker.get_known_fqn(*module).value() << '\n';
  };
  tracker.register_user_hooks({
      .pre_fw = [&](const auto& m, const auto&) { print("forward begins   ", &m); },
      .post_fw = [&](const auto& m, const auto&, const auto&) { print("forward ends     ", &m); },
      .pre_bw = [&](const auto* m, const auto&) { print("backward begins  ", m); },
      .post_bw = [&](const auto* m, const auto&) { print("backward ends    ", m); },
  });
  tracker.enter();
  net(torch::randn({8, 16})).pow(2).mean().backward();
  optimizer.step();
  tracker.exit();
}
