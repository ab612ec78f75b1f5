// SPDX-License-Identifier: BSD-3-Clause
#include "trace/run_facts.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "core/util/utf8.h"

namespace tidegauge::trace {
namespace {

std::string read_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command(std::istreambuf_iterator<char>(file), {});
  while (!command.empty() && command.back() == '\0') command.pop_back();
  for (char& letter : command) {
    if (letter == '\0') letter = ' ';
  }
  return command;
}

std::string read_variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

}  // namespace

std::string wall_clock() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

RunFacts read_run_facts(const RunFacts& of_user) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const auto clock_ns = std::chrono::steady_clock::now().time_since_epoch();
  RunFacts facts = of_user;
  facts.merge(RunFacts{
      {"command", read_command()},
      {"host", host.data()},
      {"pid", std::to_string(::getpid())},
      {"rank", read_variable("RANK", "0")},
      {"world_size", read_variable("WORLD_SIZE", "1")},
      {"started", wall_clock()},
      {"started_ns",
       std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(clock_ns).count())},
  });
  // Arguments and variables are any bytes.
  for (auto& [name, value] : facts) value = to_valid_utf8(value);
  return facts;
}

}  // namespace tidegauge::trace
