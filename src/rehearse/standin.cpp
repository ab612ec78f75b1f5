// SPDX-License-Identifier: BSD-3-Clause
#include "rehearse/standin.h"

#include <dlfcn.h>

namespace tidegauge::rehearsal {
namespace {

template <typename Function>
bool find(const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

}  // namespace

const Standin* find_standin() {
  static Standin standin{};
  static const bool is_there = find("tidegauge_standin_set_unknown", standin.set_unknown) &&
                               find("tidegauge_standin_forget", standin.forget) &&
                               find("tidegauge_standin_write", standin.write) &&
                               find("tidegauge_standin_write_equal", standin.write_equal) &&
                               find("tidegauge_standin_read", standin.read) &&
                               find("tidegauge_standin_look", standin.look);
  return is_there ? &standin : nullptr;
}

}  // namespace tidegauge::rehearsal
