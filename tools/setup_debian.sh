#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup_debian.sh <header> <package>: installs the Debian package unless the compiler finds the header.
set -euo pipefail
source "$(dirname "$0")/common.sh"

echo "#include <$1>" | "${CXX:-c++}" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null && exit
echo "installing $2"
install_debian "$2" ||
  die "$2 is missing and could not be installed; connect to the network and run:" \
    "sudo apt-get install $2"
