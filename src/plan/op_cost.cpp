// SPDX-License-Identifier: BSD-3-Clause
#include "plan/op_cost.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "plan/saturated.h"

namespace tidegauge {
namespace {

using Sizes = std::vector<int64_t>;

/// "mm" of "aten::mm.out".
std::string_view base_name(std::string_view op) {
  if (const auto colons = op.rfind("::"); colons != op.npos) op.remove_prefix(colons + 2);
  return op.substr(0, op.find('.'));
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

const OpValue* find_argument(const OpCall& call, std::string_view name) {
  const auto found = std::ranges::find(call.arguments, name, &OpValue::name);
  return found == call.arguments.end() ? nullptr : &*found;
}
const OpTensor* find_tensor(const OpCall& call, std::string_view name) {
  const OpValue* value = find_argument(call, name);
  return value == nullptr || value->tensors.empty() ? nullptr : value->tensors.data();
}
const OpTensor* tensor_at(const std::vector<OpValue>& values, size_t position) {
  if (position >= values.size() || values[position].tensors.empty()) return nullptr;
  return values[position].tensors.data();
}
bool is_true(const OpCall& call, std::string_view name) {
  const OpValue* value = find_argument(call, name);
  return value != nullptr && !value->integers.empty() && value->integers[0] != 0;
}

int64_t bytes_of(const OpTensor& tensor) {
  return saturated::multiply(tensor.stored_elements, tensor.element_bytes);
}
int64_t bytes_of(const OpValue& value) {
  int64_t total = 0;
  for (const OpTensor& tensor : value.tensors) {
    total = saturated::add(total, bytes_of(tensor));
  }
  return total;
}

/// The products of matrices [.., m, k] x [.., k, n]; a vector is a matrix with one row or column.
int64_t matmul_flops(const Sizes& a, const Sizes& b) {
  if (a.empty() || b.empty()) return 0;
  const int64_t n = b.size() == 1 ? 1 : b.back();
  int64_t flops = saturated::multiply(saturated::product(a), saturated::multiply(2, n));
  // [m, k] x [batch, k, n]: the batch is in b alone.
  const int64_t batch_a = a.size() > 2 ? saturated::product(std::span(a).first(a.size() - 2)) : 1;
  const int64_t batch_b = b.size() > 2 ? saturated::product(std::span(b).first(b.size() - 2)) : 1;
  if (batch_a < batch_b)
    flops = saturated::multiply(flops, batch_b / std::max<int64_t>(batch_a, 1));
  return flops;
}

/// Groups of rows, columns or inner elements share one dimension: `offs` says where they end. The
/// groups add up to one product over the whole dimension, however they are divided.
int64_t grouped_flops(const Sizes& a, const Sizes& b) {
  if (a.size() == 3 && b.size() == 3) return matmul_flops(a, b);
  if (a.empty() || b.empty()) return 0;
  const int64_t m = a.size() == 3 ? a[1] : a[0];
  return saturated::product({2, m, a.back(), b.back()});
}

/// The positions of the two matrices among the arguments; none if the op is not a product.
std::optional<std::array<size_t, 2>> find_factors(std::string_view name) {
  if (is_one_of(name, {"mm", "bmm", "mv", "dot", "vdot", "inner", "matmul", "linear", "_int_mm",
                       "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"})) {
    return {{0, 1}};
  }
  if (is_one_of(name, {"addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addbmm_", "addmv",
                       "addmv_", "_addmm_activation", "sspaddmm"})) {
    return {{1, 2}};
  }
  return std::nullopt;
}

void count_product(std::string_view name, const Sizes& a, Sizes b, OpCost& cost) {
  if (name == "linear" && b.size() == 2) std::swap(b[0], b[1]);
  const bool is_grouped = name.find("grouped") != name.npos;
  cost.flops = is_grouped ? grouped_flops(a, b) : matmul_flops(a, b);
  if (cost.flops == 0) return;
  cost.depth = a.back();
  cost.columns = b.size() == 1 ? 1 : b.back();
  // [batch, m, k] x [k, n] is one product with batch * m rows.
  const bool has_batch = b.size() > 2 && a.size() > 1 && !(is_grouped && a.size() == 2);
  cost.rows = a.size() == 1 ? 1 : a[a.size() - 2];
  cost.products =
      has_batch ? std::max<int64_t>(1, saturated::product(std::span(b).first(b.size() - 2))) : 1;
  if (!has_batch && a.size() > 1) cost.rows = saturated::product(std::span(a).first(a.size() - 1));
}

int64_t convolution_flops(const Sizes& input, const Sizes& output, const Sizes& weight,
                          bool is_transposed) {
  if (weight.size() < 2) return 0;
  const int64_t each = saturated::product(std::span(weight).subspan(1));
  return saturated::product({2, saturated::product(is_transposed ? input : output), each});
}

bool is_convolution(std::string_view name) {
  return name.find("conv") != name.npos && name.find("weight_norm") == name.npos &&
         name.find("convert") == name.npos;
}

int64_t forward_convolution_flops(const OpCall& call, std::string_view name) {
  const OpTensor* input = tensor_at(call.arguments, 0);
  const OpTensor* weight = tensor_at(call.arguments, 1);
  const OpTensor* output = tensor_at(call.results, 0);
  if (input == nullptr || weight == nullptr || output == nullptr) return 0;
  const bool is_transposed = is_true(call, "transposed") || name.starts_with("conv_transpose");
  return convolution_flops(input->sizes, output->sizes, weight->sizes, is_transposed);
}

int64_t backward_convolution_flops(const OpCall& call) {
  const OpTensor* grad = tensor_at(call.arguments, 0);
  const OpTensor* input = tensor_at(call.arguments, 1);
  const OpTensor* weight = tensor_at(call.arguments, 2);
  const OpValue* mask = find_argument(call, "output_mask");
  if (grad == nullptr || input == nullptr || weight == nullptr || mask == nullptr) return 0;
  const int64_t each =
      convolution_flops(input->sizes, grad->sizes, weight->sizes, is_true(call, "transposed"));
  int64_t count = 0;  // the third one, of the bias, is a sum
  for (size_t i = 0; i < std::min<size_t>(2, mask->integers.size()); ++i) {
    count += mask->integers[i];
  }
  return saturated::multiply(each, count);
}

/// The sizes of an attention: batch * heads, lengths, widths.
struct Attention {
  int64_t heads = 0;
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t width = 0;
  int64_t value_width = 0;
};

bool is_attention(std::string_view name) {
  return name.find("attention") != name.npos && !name.starts_with("_native_multi_head") &&
         name != "_fused_sdp_choice";
}

/// `_flash_attention_forward` and its relatives have the heads after the length, and may pack the
/// sequences of a batch into one.
Attention read_attention(const OpCall& call, std::string_view name) {
  const OpTensor* query = find_tensor(call, "query");
  const OpTensor* key = find_tensor(call, "key");
  const OpTensor* value = find_tensor(call, "value");
  if (query == nullptr || key == nullptr || value == nullptr) return {};
  const Sizes &q = query->sizes, &k = key->sizes, &v = value->sizes;
  if (q.empty() || q.size() != k.size() || k.size() != v.size()) return {};
  Attention found{.width = q.back(), .value_width = v.back()};
  const bool is_low_level = name.find("scaled_dot_product") == name.npos;
  const size_t dims = q.size();
  if (dims == 3 && is_low_level) {  // packed: [length, heads, width]
    const OpTensor* ends = find_tensor(call, "cum_seq_q");
    if (ends == nullptr) ends = find_tensor(call, "cu_seqlens_q");
    const int64_t sequences =
        ends == nullptr ? 1 : std::max<int64_t>(1, saturated::product(ends->sizes) - 1);
    found.heads = saturated::multiply(q[1], sequences);
    found.queries = q[0] / sequences;
    found.keys = k[0] / sequences;
    return found;
  }
  if (dims < 3) return {};
  const size_t length = is_low_level && dims == 4 && name.find("cudnn") == name.npos ? 1 : dims - 2;
  found.queries = q[length];
  found.keys = k[length];
  found.heads = 1;
  for (size_t i = 0; i + 1 < dims; ++i) {
    if (i != length) found.heads = saturated::multiply(found.heads, q[i]);
  }
  return found;
}

bool is_causal(const OpCall& call) {
  const OpValue* kind = find_argument(call, "custom_mask_type");  // 0: none, 1 and 2: causal
  return is_true(call, "is_causal") ||
         (kind != nullptr && !kind->integers.empty() && kind->integers[0] > 0);
}

void count_attention(const OpCall& call, std::string_view name, OpCost& cost) {
  const Attention a = read_attention(call, name);
  const bool is_backward = name.find("backward") != name.npos;
  const int64_t widths = is_backward ? saturated::add(3 * a.width, 2 * a.value_width)
                                     : saturated::add(a.width, a.value_width);
  cost.flops = saturated::product({2, a.heads, a.queries, a.keys, widths});
  // A causal query sees itself and what is before it: about half of a square.
  if (is_causal(call) && a.queries > 1) cost.masked_flops = cost.flops / 2;
}

struct CollectiveRow {
  std::string_view name;
  CollectiveKind kind;
};
/// The start of the name without namespace, underscore and "coalesced".
constexpr std::array kCollectives{
    CollectiveRow{"allgather", CollectiveKind::AllGather},
    CollectiveRow{"all_gather", CollectiveKind::AllGather},
    CollectiveRow{"gather", CollectiveKind::AllGather},
    CollectiveRow{"reduce_scatter", CollectiveKind::ReduceScatter},
    CollectiveRow{"scatter", CollectiveKind::Send},
    CollectiveRow{"allreduce", CollectiveKind::AllReduce},
    CollectiveRow{"all_reduce", CollectiveKind::AllReduce},
    CollectiveRow{"alltoall", CollectiveKind::AllToAll},
    CollectiveRow{"all_to_all", CollectiveKind::AllToAll},
    CollectiveRow{"broadcast", CollectiveKind::Send},
    CollectiveRow{"reduce", CollectiveKind::Send},
    CollectiveRow{"send", CollectiveKind::Send},
    CollectiveRow{"recv", CollectiveKind::Send},
};

bool is_of_collectives(std::string_view op) {
  return op.starts_with("c10d::") || op.starts_with("_c10d_functional::") ||
         op.starts_with("c10d_functional::");
}

void count_collective(const OpCall& call, OpCost& cost) {
  std::string_view name = base_name(call.op);
  while (name.starts_with('_')) name.remove_prefix(1);
  for (const CollectiveRow& row : kCollectives) {
    if (!name.starts_with(row.name)) continue;
    cost.kind = OpClass::Collective;
    cost.collective = row.kind;
    break;
  }
  if (cost.kind != OpClass::Collective) return;  // barrier, wait_tensor
  for (const OpValue& value : call.arguments) {
    cost.group_size = std::max(cost.group_size, value.group_size);
    cost.payload_bytes = std::max(cost.payload_bytes, bytes_of(value));
    if (value.name == "group_size" && !value.integers.empty()) cost.group_size = value.integers[0];
  }
  for (const OpValue& value : call.results) {
    cost.payload_bytes = std::max(cost.payload_bytes, bytes_of(value));
  }
}

/// Ops that return a tensor without writing to it.
bool only_allocates(std::string_view name) {
  return name.starts_with("empty") || name.starts_with("new_empty") ||
         is_one_of(name, {"_unsafe_view", "resize_", "set_", "lift_fresh", "_lazy_clone",
                          "is_pinned", "record_stream", "_fused_sdp_choice", "item",
                          "_local_scalar_dense", "_efficientzerotensor"});
}

/// Ops that touch as much of their first argument as they return or are given.
bool is_lookup(std::string_view name) {
  return is_one_of(name, {"embedding", "index", "index_select", "gather", "take", "take_along_dim",
                          "_unsafe_index", "nll_loss_forward", "constant_pad_nd"});
}
bool is_sparse_write(std::string_view name) {
  return is_one_of(
      name, {"index_put_", "_index_put_impl_", "_unsafe_index_put", "index_add_", "index_copy_",
             "index_fill_", "scatter_", "scatter_add_", "scatter_reduce_", "masked_scatter_"});
}
/// Ops that write to an argument without reading it.
bool overwrites(std::string_view name) {
  return is_one_of(name, {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_",
                          "exponential_", "_foreach_copy_", "_foreach_zero_"});
}

void count_bytes(const OpCall& call, std::string_view name, OpCost& cost) {
  int64_t made = 0;
  for (const OpValue& result : call.results) {
    if (!result.is_argument) made = saturated::add(made, bytes_of(result));
  }
  int64_t read = 0, written = made;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const OpValue& value = call.arguments[i];
    const int64_t bytes = bytes_of(value);
    if (i == 0 && is_lookup(name)) {
      read = saturated::add(read, std::min(bytes, made));
    } else if (i == 0 && is_sparse_write(name)) {
      continue;
    } else if (value.is_written) {
      written = saturated::add(written, bytes);
      const bool is_out = name.ends_with("_out") || value.name == "out";
      if (!overwrites(name) && !is_out) read = saturated::add(read, bytes);
    } else {
      read = saturated::add(read, bytes);
    }
  }
  if (is_sparse_write(name)) written = saturated::add(written, read);
  cost.read_bytes = read;
  cost.written_bytes = written;
}

struct Places {
  bool has_host = false;
  bool has_device = false;
};

/// A number on the CPU goes with any device.
Places find_places(const OpCall& call) {
  Places places;
  for (const auto* values : {&call.arguments, &call.results}) {
    for (const OpValue& value : *values) {
      for (const OpTensor& tensor : value.tensors) {
        if (tensor.is_on_cpu && tensor.sizes.empty()) continue;
        (tensor.is_on_cpu ? places.has_host : places.has_device) = true;
      }
    }
  }
  return places;
}

std::string_view first_dtype(const OpCall& call, size_t from) {
  for (const auto* values : {&call.arguments, &call.results}) {
    for (size_t i = values == &call.arguments ? from : 0; i < values->size(); ++i) {
      if (!(*values)[i].tensors.empty()) return (*values)[i].tensors[0].dtype;
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(OpClass kind) {
  constexpr std::array kNames{"free",   "matmul",     "convolution", "attention",
                              "memory", "collective", "transfer"};
  return kNames[static_cast<size_t>(kind)];
}

OpCost find_op_cost(const OpCall& call) {
  OpCost cost;
  const std::string_view name = base_name(call.op);
  if (is_of_collectives(call.op)) {
    count_collective(call, cost);
    cost.dtype = first_dtype(call, 0);
    return cost;
  }
  cost.dtype = first_dtype(call, 0);
  const bool has_tensors = !cost.dtype.empty();
  if (!has_tensors || call.is_view || only_allocates(name)) return cost;
  count_bytes(call, name, cost);
  cost.kind = OpClass::Memory;
  if (const auto factors = find_factors(name)) {
    const OpTensor* a = tensor_at(call.arguments, (*factors)[0]);
    const OpTensor* b = tensor_at(call.arguments, (*factors)[1]);
    if (a != nullptr && b != nullptr) {
      cost.kind = OpClass::Matmul;
      count_product(name, a->sizes, b->sizes, cost);
      cost.dtype = a->dtype;
    }
  } else if (is_attention(name)) {
    cost.kind = OpClass::Attention;
    count_attention(call, name, cost);
    if (const OpTensor* query = find_tensor(call, "query")) cost.dtype = query->dtype;
  } else if (is_convolution(name)) {
    cost.kind = OpClass::Convolution;
    cost.flops = name.ends_with("backward") ? backward_convolution_flops(call)
                                            : forward_convolution_flops(call, name);
  }
  const Places places = find_places(call);
  if (places.has_host && places.has_device) cost.kind = OpClass::Transfer;
  cost.is_on_host = places.has_host && !places.has_device;
  return cost;
}

}  // namespace tidegauge
