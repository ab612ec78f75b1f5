// SPDX-License-Identifier: BSD-3-Clause
#include "capture/storages/pending_frees.h"

#include <algorithm>
#include <utility>

namespace tidegauge {

bool PendingFrees::add(const RegisteredStorage& ended) {
  if (freed == nullptr) freed = new std::array<RegisteredStorage, 4>;
  if (count == freed->size()) return false;
  (*freed)[count++] = ended;
  return true;
}

RegisteredStorage PendingFrees::take(size_t position) {
  const RegisteredStorage taken = (*freed)[position];
  std::copy(freed->begin() + position + 1, freed->begin() + count, freed->begin() + position);
  --count;
  return taken;
}

void PendingFrees::clear() {
  delete std::exchange(freed, nullptr);
  count = 0;
}

}  // namespace tidegauge
