// SPDX-License-Identifier: BSD-3-Clause
#include "core/modules/subtree_sizes.h"

namespace tidegauge {

bool SubtreeSizes::open(ModuleId module) {
  const auto [found, is_new] = visited_.try_emplace(module, nodes_.size());
  if (is_new) {
    nodes_.push_back({module, open_});
    open_ = nodes_.size() - 1;
    return true;
  }
  // The open modules that began after the shared one are not above its first visit.
  for (size_t i = open_; i != kNone && i > found->second; i = nodes_[i].parent) {
    nodes_[i].lacks_shared = true;
  }
  return false;
}

size_t SubtreeSizes::common(size_t earlier) const {
  size_t node = open_;
  while (node > earlier) node = nodes_[node].parent;
  return node;
}

void SubtreeSizes::add(StorageId storage, int64_t size_bytes) {
  const auto [found, is_new] = last_owner_.try_emplace(storage, open_);
  nodes_[open_].sum_bytes += size_bytes;
  if (is_new) return;
  nodes_[common(found->second)].sum_bytes -= size_bytes;
  found->second = open_;
}

void SubtreeSizes::close() { open_ = nodes_[open_].parent; }

std::vector<SubtreeSizes::Size> SubtreeSizes::finish() {
  std::vector<Size> sizes;
  for (size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (node.parent != kNone) nodes_[node.parent].sum_bytes += node.sum_bytes;
    if (!node.lacks_shared) sizes.push_back({node.module, node.sum_bytes});
  }
  return sizes;
}

}  // namespace tidegauge
