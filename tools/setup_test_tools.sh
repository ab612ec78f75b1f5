#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs what tests need, unless it is installed: node and Chromium for the HTML report, zsh and
# fish for the completion of commands. If that fails, those tests are skipped, except with CI=true.
set -euo pipefail
source "$(dirname "$0")/common.sh"

for pair in node:nodejs chromium:chromium zsh:zsh fish:fish; do
  command -v "${pair%:*}" >/dev/null && continue
  package=${pair#*:}
  echo "installing $package"
  install_debian "$package" && continue
  message="$package is missing and could not be installed; connect to the network and run:"
  [ "${CI:-}" != true ] || die "$message sudo apt-get install $package"
  echo "tidegauge: $message sudo apt-get install $package; tests that need it are skipped" >&2
done
