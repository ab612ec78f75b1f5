// SPDX-License-Identifier: BSD-3-Clause
//
// Shows the memory of a small Transformer during training with Adam, without Python.
// `train_transformer --json` prints all figures in a form that programs can read. `--allocator`
// also counts CPU allocations that belong to no tensor.
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

#include "tidegauge/tidegauge.h"

using tidegauge::Tracked;
namespace nn = torch::nn;

constexpr int64_t kVocabulary = 100;
constexpr int64_t kWidth = 32;
constexpr int64_t kHeads = 4;
constexpr int64_t kLength = 16;
constexpr int64_t kBatch = 2;

struct AttentionImpl : nn::Module {
  AttentionImpl() {
    qkv = register_module("qkv", Tracked<nn::Linear>(kWidth, 3 * kWidth));
    out = register_module("out", Tracked<nn::Linear>(kWidth, kWidth));
    mask = register_buffer("mask", torch::ones({kLength, kLength}, torch::kBool).triu(1));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto heads = qkv(x).view({kBatch, kLength, 3, kHeads, -1}).permute({2, 0, 3, 1, 4});
    const auto scores = torch::matmul(heads[0], heads[1].transpose(-2, -1)) / 8.0;
    const auto weights = scores.masked_fill(mask, -1e9).softmax(-1);
    const auto mixed = torch::matmul(weights, heads[2]).transpose(1, 2);
    return out(mixed.reshape({kBatch, kLength, kWidth}));
  }
  Tracked<nn::Linear> qkv{nullptr};
  Tracked<nn::Linear> out{nullptr};
  torch::Tensor mask;
};
TORCH_MODULE(Attention);

struct MlpImpl : nn::Module {
  MlpImpl() {
    wide = register_module("wide", Tracked<nn::Linear>(kWidth, 4 * kWidth));
    relu = register_module("relu", Tracked<nn::ReLU>());
    narrow = register_module("narrow", Tracked<nn::Linear>(4 * kWidth, kWidth));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto hidden = wide(x);
    const auto active = relu(hidden);
    return narrow(active);
  }
  Tracked<nn::Linear> wide{nullptr};
  Tracked<nn::ReLU> relu{nullptr};
  Tracked<nn::Linear> narrow{nullptr};
};
TORCH_MODULE(Mlp);

struct BlockImpl : nn::Module {
  BlockImpl() {
    const nn::LayerNormOptions norm({kWidth});
    norm_1 = register_module("norm_1", Tracked<nn::LayerNorm>(norm));
    attention = register_module("attention", Tracked<Attention>());
    norm_2 = register_module("norm_2", Tracked<nn::LayerNorm>(norm));
    mlp = register_module("mlp", Tracked<Mlp>());
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto attended = attention(norm_1(x));
    const auto y = x + attended;
    const auto changed = mlp(norm_2(y));
    return y + changed;
  }
  Tracked<nn::LayerNorm> norm_1{nullptr};
  Tracked<Attention> attention{nullptr};
  Tracked<nn::LayerNorm> norm_2{nullptr};
  Tracked<Mlp> mlp{nullptr};
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  TransformerImpl() {
    embed = register_module("embed", Tracked<nn::Embedding>(kVocabulary, kWidth));
    block_1 = register_module("block_1", Tracked<Block>());
    block_2 = register_module("block_2", Tracked<Block>());
    head = register_module("head", Tracked<nn::Linear>(kWidth, kVocabulary));
  }
  torch::Tensor forward(const torch::Tensor& tokens) {
    return head(block_2(block_1(embed(tokens))));
  }
  Tracked<nn::Embedding> embed{nullptr};
  Tracked<Block> block_1{nullptr};
  Tracked<Block> block_2{nullptr};
  Tracked<nn::Linear> head{nullptr};
};
TORCH_MODULE(Transformer);

/// Writes figures as JSON: {"cpu": [bytes of each category]}, etc.
void write_json(const tidegauge::MemSnapshot& snapshot) {
  std::cout << '{';
  for (const auto& entry : snapshot.devices) {
    std::cout << (&entry == snapshot.devices.data() ? "\"" : ", \"") << entry.device << "\": [";
    for (size_t i = 0; i < entry.bytes.size(); ++i) std::cout << (i ? ", " : "") << entry.bytes[i];
    std::cout << ']';
  }
  std::cout << '}';
}

void write_json(const tidegauge::ModMemStats& module) {
  std::cout << "{\"mod_fqn\": \"" << module.mod_fqn << "\", \"sizes\": ["
            << module.parameter_mem.value() << ", " << module.buffer_mem.value() << ", "
            << module.input_mem.value() << ", " << module.output_mem.value()
            << "], \"snapshots\": [";
  std::string_view comma;
  for (const auto& [state, calls] : module.snapshots) {
    for (const auto& snapshot : calls) {
      std::cout << comma << "[\"" << to_string(state) << "\", ";
      write_json(snapshot);
      std::cout << ']';
      comma = ", ";
    }
  }
  std::cout << "]}";
}

/// Untracked bytes on the CPU, the only device here.
int64_t untracked_bytes(const tidegauge::MemTracker& tracker, std::string_view type) {
  const auto all = tracker.get_untracked_memory(type);
  return all.empty() ? 0 : all.front().second;
}

int main(int argc, char** argv) {
  const auto has = [&](std::string_view option) {
    return std::find(argv + 1, argv + argc, option) != argv + argc;
  };
  const bool as_json = has("--json");
  torch::manual_seed(0);
  Tracked<Transformer> model;
  torch::optim::Adam optimizer(model->parameters());
  const auto tokens = torch::randint(kVocabulary, {kBatch, kLength}, torch::kLong);

  tidegauge::MemTracker tracker({.allocator = has("--allocator")});
  tracker.track_external(model, optimizer, tokens);
  const auto report = [&](const std::string& moment) {
    if (!as_json) return;
    std::cout << "{\"moment\": \"" << moment << "\", \"current\": ";
    write_json(tracker.get_tracker_snapshot("current"));
    std::cout << ", \"peak\": ";
    write_json(tracker.get_tracker_snapshot("peak"));
    std::cout << ", \"untracked\": [" << untracked_bytes(tracker, "current") << ", "
              << untracked_bytes(tracker, "peak") << "]}\n";
  };
  tracker.enter();
  for (const std::string step : {"1", "2"}) {
    optimizer.zero_grad();
    report("start " + step);
    auto loss = nn::functional::cross_entropy(model(tokens).flatten(0, 1), tokens.flatten());
    report("forward " + step);
    loss.backward();
    report("backward " + step);
    tidegauge::step(optimizer);
    report("step " + step);
  }
  tracker.exit();

  if (as_json) {
    for (const auto& module : tracker.memory_tracking()) {
      write_json(module);
      std::cout << '\n';
    }
    return 0;
  }
  std::cout << "At the peak\n";
  tracker.display_snapshot("peak", "KiB");
  std::cout << "\nThe model in the second step\n";
  tracker.display_modulewise_snapshots(2, "KiB");
}
