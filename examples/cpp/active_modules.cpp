// SPDX-License-Identifier: BSD-3-Clause
// Which modules are running, in forward and in backward, asked from the hooks of a tracker.
#include <tidegauge/tidegauge.h>
#include <torch/torch.h>

#include <iostream>
#include <string>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 4));
  const torch::Tensor x = torch::ones({2, 8}, torch::requires_grad());

  tidegauge::ModTracker tracker;
  const auto print = [&](const std::string& moment) {
    std::cout << moment;
    for (const std::string& name : tracker.parents()) std::cout << " > " << name;
    std::cout << '\n';
  };
  tracker.register_user_hooks({.pre_fw = [&](auto&&...) { print("forward "); },
                               .pre_bw = [&](auto&&...) { print("backward"); }});
  tracker.enter();
  tidegauge::call_sequential(model, x).sum().backward();
  tracker.exit();
}
