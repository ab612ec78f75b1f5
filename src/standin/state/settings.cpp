// SPDX-License-Identifier: BSD-3-Clause
#include "standin/state/settings.h"

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace tidegauge::standin {
namespace {

size_t parse_number(std::string_view text) {
  size_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

void set(Settings& settings, std::string_view key, std::string_view value) {
  const size_t number = parse_number(value);
  if (key == "devices") settings.devices = static_cast<int>(number);
  if (key == "memory") settings.memory_bytes = number;
  if (key == "context") settings.context_bytes = number;
  if (key == "communication") settings.communication_bytes = number;
  if (key == "cudnn_workspace") settings.cudnn_workspace_bytes = number;
  if (key == "major") settings.major = static_cast<int>(number);
  if (key == "minor") settings.minor = static_cast<int>(number);
  if (key == "multiprocessors") settings.multiprocessors = static_cast<int>(number);
  if (key == "copy_limit") settings.copy_limit_bytes = number;
  if (key == "events") settings.slow_events = value == "slow";
  if (key == "name") settings.name = value;
}

Settings read_settings() {
  Settings read;
  const char* text = std::getenv("TIDEGAUGE_STANDIN");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    set(read, std::string_view(word).substr(0, equals), std::string_view(word).substr(equals + 1));
  }
  for (char& letter : read.name) {
    if (letter == '_') letter = ' ';
  }
  return read;
}

int count_visible() {
  const int devices = settings().devices;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) return devices;
  int count = 0;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    int index = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    // CUDA ignores the first invalid entry and all that follow.
    if (error != std::errc() || end != word.data() + word.size()) break;
    if (index < 0 || index >= devices) break;
    ++count;
  }
  return count;
}

}  // namespace

const Settings& settings() {
  static const auto* read = new Settings(read_settings());
  return *read;
}

int visible_devices() {
  static const int count = count_visible();
  return count;
}

}  // namespace tidegauge::standin
