// SPDX-License-Identifier: BSD-3-Clause
#include "simulate/output_cache.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/flat_hash_map.h>

#include <bit>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "core/util/spin_lock.h"
#include "simulate/simulated_tensor.h"

namespace tidegauge::simulation {
namespace {

using c10::IValue;
using Kind = OutputShape::Kind;

/// Distinguishes the kinds of arguments in a key.
enum Mark : int64_t {
  kTensor = 1,
  kUndefined,
  kNone,
  kInt,
  kDouble,
  kTrue,
  kFalse,
  kDevice,
  kInts,
  kTensors,
  kDoubles,
  kText,
  kGenerator,
  kList,
  kComplex,
};

class KeyWriter {
 public:
  KeyWriter(CallKey& key, bool ignores_doubles) : key_(key), ignores_doubles_(ignores_doubles) {}

  void write(const at::Tensor& tensor) {
    if (!tensor.defined()) return key_.push_back(kUndefined);
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const bool is_ours = is_simulated(tensor);
    const c10::Device device = is_ours ? as_simulated(tensor).counted_device() : impl->device();
    key_.push_back(kTensor | (static_cast<int64_t>(tensor.scalar_type()) << 8) |
                   (static_cast<int64_t>(impl->is_wrapped_number()) << 16) |
                   (static_cast<int64_t>(is_ours) << 17) | (encode(device) << 24));
    write(impl->sizes());
    key_.append(impl->strides().begin(), impl->strides().end());
  }

  bool write(const IValue& value) {
    if (value.isTensor()) {
      write(value.toTensor());
    } else if (value.isNone()) {
      key_.push_back(kNone);
    } else if (value.isInt()) {
      key_.append({kInt, value.toInt()});
    } else if (value.isDouble()) {
      key_.push_back(kDouble);
      write(value.toDouble());
    } else if (value.isBool()) {
      key_.push_back(value.toBool() ? kTrue : kFalse);
    } else if (value.isDevice()) {
      key_.append({kDevice, encode(value.toDevice())});
    } else if (value.isIntList()) {
      key_.push_back(kInts);
      write(value.toDimVector());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      key_.append({kTensors, static_cast<int64_t>(list.size())});
      for (const at::Tensor& tensor : list) write(tensor);
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleList();
      key_.append({kDoubles, static_cast<int64_t>(list.size())});
      for (const double number : list) write(number);
    } else if (value.isString()) {
      key_.append({kText, static_cast<int64_t>(std::hash<std::string>()(value.toStringRef()))});
    } else if (value.isGenerator()) {
      key_.push_back(kGenerator);
    } else if (value.isComplexDouble()) {
      key_.push_back(kComplex);
      write(value.toComplexDouble().real());
      write(value.toComplexDouble().imag());
    } else if (value.isList()) {
      const auto list = value.toListRef();
      key_.append({kList, static_cast<int64_t>(list.size())});
      for (const IValue& item : list) {
        if (!write(item)) return false;
      }
    } else {
      return false;
    }
    return true;
  }

 private:
  static int64_t encode(c10::Device device) {
    return static_cast<int64_t>(device.type()) * 256 + static_cast<uint8_t>(device.index());
  }
  void write(c10::IntArrayRef numbers) {
    key_.push_back(static_cast<int64_t>(numbers.size()));
    key_.append(numbers.begin(), numbers.end());
  }
  void write(double number) {
    if (!ignores_doubles_) key_.push_back(std::bit_cast<int64_t>(number));
  }

  CallKey& key_;
  const bool ignores_doubles_;
};

struct KeyHash {
  size_t operator()(const CallKey& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15ull;
    for (const int64_t number : key) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0xFF51AFD7ED558CCDull;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

struct Cache {
  SpinLock mutex;
  ska::flat_hash_map<CallKey, std::shared_ptr<const OutputCache::Entry>, KeyHash> entries;
};
Cache& cache() {
  static auto* all = new Cache;
  return *all;
}

/// A tensor among the arguments and its position.
struct Place {
  at::Tensor tensor;
  int argument;
  int item;
};

std::vector<Place> list_tensors(std::span<const IValue> arguments) {
  std::vector<Place> places;
  for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
    const IValue& value = arguments[i];
    if (value.isTensor()) {
      places.push_back({value.toTensor(), i, -1});
    } else if (value.isList()) {
      int item = 0;
      for (const IValue& one : value.toList().vec()) {
        if (one.isTensor()) places.push_back({one.toTensor(), i, item});
        ++item;
      }
    }
  }
  std::erase_if(places, [](const Place& place) { return !place.tensor.defined(); });
  return places;
}

at::Tensor tensor_at(std::span<const IValue> arguments, const OutputShape& shape) {
  const IValue& value = arguments[shape.argument];
  if (shape.item < 0) return value.toTensor();
  return value.toList().get(shape.item).toTensor();
}

std::optional<OutputShape> describe_one(const std::vector<Place>& places,
                                        const at::Tensor& result) {
  if (!result.defined()) return OutputShape{.kind = Kind::Undefined};
  for (const auto& [tensor, argument, item] : places) {
    if (tensor.is_same(result)) {
      return OutputShape{.kind = Kind::Argument, .argument = argument, .item = item};
    }
  }
  if (!is_simulated(result)) return std::nullopt;
  const c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  OutputShape shape{.offset = impl->storage_offset(),
                    .storage_bytes = static_cast<int64_t>(impl->unsafe_storage().nbytes()),
                    .dtype = impl->dtype(),
                    .lazy_bits = impl->key_set() & kLazyBits};
  shape.sizes.assign(impl->sizes().begin(), impl->sizes().end());
  shape.strides.assign(impl->strides().begin(), impl->strides().end());
  for (const auto& [tensor, argument, item] : places) {
    if (is_simulated(tensor) &&
        tensor.storage().unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) {
      shape.kind = Kind::View;
      shape.argument = argument;
      shape.item = item;
      shape.offset -= tensor.storage_offset();
      return shape;
    }
  }
  // Results that share a storage with each other are rare, so they are not cached.
  if (impl->unsafe_storage().use_count() != 1) return std::nullopt;
  return shape;
}

at::Tensor build_one(const OutputShape& shape, std::span<const IValue> arguments,
                     c10::Device device) {
  if (shape.kind == Kind::Undefined) return {};
  if (shape.kind == Kind::Argument) return tensor_at(arguments, shape);
  int64_t offset = shape.offset;
  c10::intrusive_ptr<SimulatedTensor> result;
  if (shape.kind == Kind::View) {
    const at::Tensor base = tensor_at(arguments, shape);
    offset += base.storage_offset();
    result = c10::make_intrusive<SimulatedTensor>(as_simulated(base), shape.lazy_bits, shape.dtype);
  } else {
    result = c10::make_intrusive<SimulatedTensor>(
        SimulatedStorage::make(shape.storage_bytes, device),
        keys_of(shape.dtype, device) | shape.lazy_bits, shape.dtype, device);
  }
  result->set_sizes_and_strides(shape.sizes, shape.strides, offset);
  return at::Tensor(std::move(result));
}

}  // namespace

std::optional<CallKey> make_call_key(const OpTraits& traits, std::span<const IValue> arguments) {
  CallKey key;
  key.append({traits.id, static_cast<int64_t>(c10::get_default_dtype_as_scalartype())});
  KeyWriter writer(key, traits.ignores_doubles);
  for (const IValue& value : arguments) {
    if (!writer.write(value)) return std::nullopt;
  }
  return key;
}

std::optional<CallShape> describe(std::span<const IValue> arguments,
                                  std::span<const IValue> results) {
  const std::vector<Place> places = list_tensors(arguments);
  CallShape shape;
  for (const IValue& value : results) {
    OutputList& list = shape.emplace_back();
    if (value.isNone() || value.isInt() || value.isDouble() || value.isBool()) {
      list.outputs.push_back({.kind = Kind::Number, .number = value});
    } else if (value.isTensor()) {
      auto one = describe_one(places, value.toTensor());
      if (!one) return std::nullopt;
      list.outputs.push_back(std::move(*one));
    } else if (value.isTensorList()) {
      list.is_list = true;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        auto one = describe_one(places, tensor);
        if (!one) return std::nullopt;
        list.outputs.push_back(std::move(*one));
      }
    } else {
      return std::nullopt;
    }
  }
  return shape;
}

void build(const CallShape& shape, std::span<const IValue> arguments, c10::Device device,
           std::vector<IValue>& results) {
  for (const OutputList& list : shape) {
    if (list.is_list) {
      c10::List<at::Tensor> tensors;
      tensors.reserve(list.outputs.size());
      for (const OutputShape& one : list.outputs) {
        tensors.push_back(build_one(one, arguments, device));
      }
      results.emplace_back(std::move(tensors));
    } else if (list.outputs.front().kind == Kind::Number) {
      results.push_back(list.outputs.front().number);
    } else {
      results.emplace_back(build_one(list.outputs.front(), arguments, device));
    }
  }
}

std::shared_ptr<const OutputCache::Entry> OutputCache::find(const CallKey& key) {
  const std::lock_guard lock(cache().mutex);
  const auto it = cache().entries.find(key);
  return it != cache().entries.end() ? it->second : nullptr;
}

void OutputCache::add(CallKey key, Entry entry) {
  auto shared = std::make_shared<const Entry>(std::move(entry));
  const std::lock_guard lock(cache().mutex);
  if (cache().entries.size() >= kMaxEntries) cache().entries.clear();
  cache().entries.insert_or_assign(std::move(key), std::move(shared));
}

void OutputCache::clear() {
  const std::lock_guard lock(cache().mutex);
  cache().entries.clear();
}

size_t OutputCache::size() {
  const std::lock_guard lock(cache().mutex);
  return cache().entries.size();
}

}  // namespace tidegauge::simulation
