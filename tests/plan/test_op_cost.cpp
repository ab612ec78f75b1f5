// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "plan/op_cost.h"

namespace {

using tidegauge::CollectiveKind;
using tidegauge::find_op_cost;
using tidegauge::OpCall;
using tidegauge::OpClass;
using tidegauge::OpCost;
using tidegauge::OpTensor;
using tidegauge::OpValue;

using Sizes = std::vector<int64_t>;

OpTensor tensor(Sizes sizes, bool is_on_cpu = false) {
  int64_t elements = 1;
  for (const int64_t size : sizes) elements *= size;
  return {std::move(sizes), "bfloat16", 2, elements, is_on_cpu};
}
OpValue value(const Sizes& sizes, const char* name = "") { return {name, {tensor(sizes)}}; }
OpValue numbers(std::vector<int64_t> integers, const char* name) {
  return {name, {}, std::move(integers)};
}

TEST(OpCost, ProductOfMatrices) {
  const OpCost cost = find_op_cost({"aten::mm", {value({3, 5}), value({5, 7})}, {value({3, 7})}});
  EXPECT_EQ(cost.kind, OpClass::Matmul);
  EXPECT_EQ(cost.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(cost.read_bytes, (3 * 5 + 5 * 7) * 2);
  EXPECT_EQ(cost.written_bytes, 3 * 7 * 2);
  EXPECT_EQ(cost.dtype, "bfloat16");
}

TEST(OpCost, BiasIsNoFactor) {
  EXPECT_EQ(
      find_op_cost({"aten::addmm", {value({7}), value({3, 5}), value({5, 7})}, {value({3, 7})}})
          .flops,
      2 * 3 * 5 * 7);
}

TEST(OpCost, BatchedProduct) {
  EXPECT_EQ(
      find_op_cost({"aten::bmm", {value({4, 3, 5}), value({4, 5, 7})}, {value({4, 3, 7})}}).flops,
      4 * 2 * 3 * 5 * 7);
}

TEST(OpCost, LinearHasItsWeightTransposed) {
  EXPECT_EQ(
      find_op_cost({"aten::linear", {value({2, 3, 5}), value({7, 5})}, {value({2, 3, 7})}}).flops,
      2 * (2 * 3) * 5 * 7);
}

TEST(OpCost, GroupsShareTheRowsOfOneProduct) {
  // 10 rows are divided among 4 experts, each with a matrix [5, 7]: every row is used once.
  EXPECT_EQ(find_op_cost({"aten::_grouped_mm",
                          {value({10, 5}), value({4, 5, 7}), value({4}, "offs")},
                          {value({10, 7})}})
                .flops,
            2 * 10 * 5 * 7);
  // Gradient of the matrices: 10 inner elements are divided among the experts.
  EXPECT_EQ(find_op_cost({"aten::_grouped_mm",
                          {value({5, 10}), value({10, 7}), value({4}, "offs")},
                          {value({4, 5, 7})}})
                .flops,
            2 * 10 * 5 * 7);
}

OpCall convolution(bool is_transposed) {
  return {"aten::convolution",
          {value({2, 6, 8, 8}), value({4, 6, 3, 3}), numbers({is_transposed}, "transposed")},
          {value({2, 4, 6, 6})}};
}

TEST(OpCost, ConvolutionCountsOutputsTimesKernel) {
  EXPECT_EQ(find_op_cost(convolution(false)).flops, 2 * (2 * 4 * 6 * 6) * (6 * 3 * 3));
}

TEST(OpCost, TransposedConvolutionCountsInputsTimesKernel) {
  // weight [in, out / groups, 3, 3]
  EXPECT_EQ(find_op_cost({"aten::convolution",
                          {value({2, 6, 8, 8}), value({6, 4, 3, 3}), numbers({1}, "transposed")},
                          {value({2, 4, 10, 10})}})
                .flops,
            2 * (2 * 6 * 8 * 8) * (4 * 3 * 3));
}

TEST(OpCost, EachWantedGradientOfAConvolutionCostsAForward) {
  for (const auto& [mask, count] :
       {std::pair(Sizes{1, 1, 1}, 2), std::pair(Sizes{0, 1, 0}, 1), std::pair(Sizes{0, 0, 1}, 0)}) {
    EXPECT_EQ(find_op_cost({"aten::convolution_backward",
                            {value({2, 4, 6, 6}), value({2, 6, 8, 8}), value({4, 6, 3, 3}),
                             numbers({0}, "transposed"), numbers(mask, "output_mask")},
                            {value({2, 6, 8, 8})}})
                  .flops,
              count * find_op_cost(convolution(false)).flops);
  }
}

OpCall attention(const char* op, bool is_causal, const Sizes& query, const Sizes& key) {
  return {op,
          {value(query, "query"), value(key, "key"), value(key, "value"),
           numbers({is_causal}, "is_causal")},
          {value(query)}};
}

TEST(OpCost, AttentionHasTheHeadsOfItsQuery) {
  // [batch 2, heads 8, length 16, width 32], keys with 4 heads of length 20
  const OpCost cost = find_op_cost(attention("aten::_scaled_dot_product_flash_attention", false,
                                             {2, 8, 16, 32}, {2, 4, 20, 32}));
  EXPECT_EQ(cost.kind, OpClass::Attention);
  EXPECT_EQ(cost.flops, 2 * (2 * 8) * 16 * 20 * (32 + 32));
  EXPECT_EQ(cost.masked_flops, 0);
}

TEST(OpCost, CausalAttentionSkipsHalf) {
  const OpCost cost = find_op_cost(attention("aten::_scaled_dot_product_efficient_attention", true,
                                             {2, 8, 16, 32}, {2, 8, 16, 32}));
  EXPECT_EQ(cost.masked_flops, cost.flops / 2);
}

TEST(OpCost, BackwardOfAttentionComputesFiveProducts) {
  const Sizes sizes{2, 8, 16, 32};
  const char* forward = "aten::_scaled_dot_product_flash_attention_for_cpu";
  const char* backward = "aten::_scaled_dot_product_flash_attention_for_cpu_backward";
  EXPECT_EQ(2 * find_op_cost(attention(backward, false, sizes, sizes)).flops,
            5 * find_op_cost(attention(forward, false, sizes, sizes)).flops);
}

TEST(OpCost, LowLevelAttentionHasTheHeadsAfterTheLength) {
  EXPECT_EQ(find_op_cost(
                attention("aten::_flash_attention_forward", false, {2, 16, 8, 32}, {2, 20, 8, 32}))
                .flops,
            2 * (2 * 8) * 16 * 20 * (32 + 32));
}

TEST(OpCost, PackedSequencesAttendToThemselvesOnly) {
  OpCall call = attention("aten::_flash_attention_forward", false, {64, 8, 32}, {64, 8, 32});
  call.arguments.push_back(value({5}, "cum_seq_q"));  // 4 sequences of 16
  EXPECT_EQ(find_op_cost(call).flops, 4 * 2 * 8 * 16 * 16 * (32 + 32));
}

TEST(OpCost, ViewsAndAllocationsAreFree) {
  const OpCall view{"aten::t", {value({3, 5})}, {value({5, 3})}, true};
  EXPECT_EQ(find_op_cost(view).kind, OpClass::Free);
  EXPECT_EQ(find_op_cost(view).read_bytes, 0);
  EXPECT_EQ(find_op_cost({"aten::empty.memory_format", {}, {value({1000})}}).written_bytes, 0);
}

TEST(OpCost, ExpandedTensorIsReadOnce) {
  OpCall call{"aten::add.Tensor", {value({10, 4}), value({10, 4})}, {value({10, 4})}};
  call.arguments[1].tensors[0].stored_elements = 4;
  EXPECT_EQ(find_op_cost(call).read_bytes, (40 + 4) * 2);
}

TEST(OpCost, InPlaceOpReadsAndWritesItsArgument) {
  OpCall call{"aten::add_.Tensor", {value({8}), value({8})}, {value({8})}};
  call.arguments[0].is_written = true;
  call.results[0].is_argument = true;
  EXPECT_EQ(find_op_cost(call).read_bytes, 32);
  EXPECT_EQ(find_op_cost(call).written_bytes, 16);
  call.op = "aten::copy_";  // overwrites
  EXPECT_EQ(find_op_cost(call).read_bytes, 16);
}

TEST(OpCost, LookupReadsTheRowsThatItReturns) {
  const OpCost cost =
      find_op_cost({"aten::embedding", {value({100000, 8}), value({4})}, {value({4, 8})}});
  EXPECT_EQ(cost.read_bytes, (4 * 8 + 4) * 2);
}

TEST(OpCost, CollectiveHasThePayloadOfAllRanksTogether) {
  OpValue group;
  group.group_size = 8;
  const OpCost cost =
      find_op_cost({"c10d::_allgather_base_", {value({800}), value({100}), group}, {value({800})}});
  EXPECT_EQ(cost.kind, OpClass::Collective);
  EXPECT_EQ(cost.collective, CollectiveKind::AllGather);
  EXPECT_EQ(cost.payload_bytes, 1600);
  EXPECT_EQ(cost.group_size, 8);
  EXPECT_EQ(find_op_cost({"c10d::_reduce_scatter_base_", {value({100}), value({800}), group}, {}})
                .collective,
            CollectiveKind::ReduceScatter);
  EXPECT_EQ(find_op_cost({"c10d::barrier", {group}, {}}).kind, OpClass::Free);
}

TEST(OpCost, CopyBetweenHostAndDeviceIsATransfer) {
  OpCall call{"aten::_to_copy", {value({8})}, {value({8})}};
  call.results[0].tensors[0].is_on_cpu = true;
  EXPECT_EQ(find_op_cost(call).kind, OpClass::Transfer);
  call.arguments[0].tensors[0].is_on_cpu = true;
  EXPECT_EQ(find_op_cost(call).kind, OpClass::Memory);
  EXPECT_TRUE(find_op_cost(call).is_on_host);
}

TEST(OpCost, OpWithoutTensorsRunsNoKernel) {
  EXPECT_EQ(find_op_cost({"profiler::_record_function_enter_new", {numbers({1}, "name")}, {}}).kind,
            OpClass::Free);
}

TEST(OpCost, UnknownOpCostsItsBytes) {
  const OpCost cost = find_op_cost({"mylib::norm", {value({8})}, {value({8})}});
  EXPECT_EQ(cost.kind, OpClass::Memory);
  EXPECT_EQ(cost.read_bytes + cost.written_bytes, 32);
}

TEST(OpCost, HugeShapesStopAtTheLargestNumber) {
  const int64_t huge = int64_t{1} << 40;
  OpCall call{"aten::mm", {value({2, 2}), value({2, 2})}, {value({2, 2})}};
  for (OpValue& each : call.arguments) each.tensors[0].sizes = {huge, huge};
  EXPECT_EQ(find_op_cost(call).flops, std::numeric_limits<int64_t>::max());
}

}  // namespace
