#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup_venv.sh <name>: makes .venv if it does not exist and installs requirements/locked/<name>.txt,
# which has the hashes of all files. TIDEGAUGE_NO_HASHES=1: installs requirements/<name>.txt, for an
# index with other builds of the same versions.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

# Runs each candidate, because a version manager's stub may exist but not work.
find_python() {
  for python in ${PYTHON:-python3.11 python3}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
}

if [ ! -x .venv/bin/pip ]; then
  python=$(find_python)
  [ -n "$python" ] || die "found no Python 3.11; run: apt-get install python3.11 python3.11-venv," \
    "or set PYTHON to one"
  "$python" -m venv .venv >/dev/null ||
    die "$python cannot make a virtual environment; run: apt-get install python3.11-venv"
fi
.venv/bin/python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' \
  2>/dev/null || die "found no C headers of Python; run: apt-get install python3.11-dev"

# Makes the sources importable from the environment; `make build` puts _C beside them. The command
# is the same as the one pip makes from pyproject.toml.
.venv/bin/python - <<'EOF'
import pathlib, sys, sysconfig
path = pathlib.Path(sysconfig.get_path("purelib"), "tidegauge.pth")
path.write_text(str(pathlib.Path("python").resolve()) + "\n")
command = pathlib.Path(sysconfig.get_path("scripts"), "tidegauge")
command.write_text(
    f"#!{sys.executable}\nimport sys\nfrom tidegauge.cli.main import main\nsys.exit(main())\n"
)
command.chmod(0o755)
EOF

list=requirements/locked/$1.txt
options=(--require-hashes)
if [ -n "${TIDEGAUGE_NO_HASHES:-}" ]; then
  list=requirements/$1.txt
  options=()
fi
echo "installing $list into .venv"
if ! .venv/bin/pip install -qq --retries 2 --disable-pip-version-check "${options[@]}" -r "$list" \
  >.venv/pip.log 2>&1; then
  if grep -qi "hashes" .venv/pip.log; then
    die "the package index offers other files than $list lists (see .venv/pip.log); use another" \
      "index, or set TIDEGAUGE_NO_HASHES=1 to accept them, then run make again"
  fi
  die "pip could not install $list (see .venv/pip.log); connect to a package index" \
    "or point PIP_INDEX_URL or PIP_FIND_LINKS to one, then run make again"
fi
