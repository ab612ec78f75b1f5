# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the other scripts.

# die <message>: prints one line that says what is wrong and what to do, and exits.
die() {
  echo "tidegauge: $*" >&2
  exit 1
}

# install_debian <package>: installs it without output; fails without root, apt or a network.
install_debian() {
  local sudo=
  [ "$(id -u)" = 0 ] || sudo="sudo -n"
  { $sudo apt-get update -qq && $sudo apt-get install -qq -y --no-install-recommends "$1"; } \
    </dev/null >/dev/null 2>&1
}
