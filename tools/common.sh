# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the other scripts.

# die <what is wrong and what to do>: one line, no traceback.
die() {
  echo "tidegauge: $*" >&2
  exit 1
}
