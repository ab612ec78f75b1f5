#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup_torch_env.sh <version>: makes build/envs/torch-<version>, an environment with this torch
# (2.15.0, 2.13.0+cu130) and everything else that our build and our tests need; does nothing if it
# exists. TORCH_ENV names another environment, which must have this torch already.
#
# A version without +cpu comes from the package index alone: where pip has local files, these are CPU
# builds. One with +cpu comes from wherever pip finds it.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

version=$1
env=${TORCH_ENV:-$PWD/build/envs/torch-$version}
python=$env/bin/python

# pip_install <arguments>: with the environment's pip.
pip_install() {
  "$python" -m pip "$@" >"$env/pip.log" 2>&1 ||
    die "pip could not install torch $version or what our tests need (see $env/pip.log); connect to" \
      "a package index, then run make again"
}

set_up() {
  local base=${PYTHON:-python3.11}
  "$base" -m venv "$env" || die "$base cannot make a virtual environment; set PYTHON to another"
  echo "installing torch $version into $env"
  case $version in
    *+cpu) pip_install install "torch==$version" ;;
    *) (unset PIP_FIND_LINKS && pip_install --isolated install "torch==${version%%+*}") ;;
  esac
  sed '/^torch==/d; /^-c /d' requirements/build.txt requirements/test.txt >"$env/requirements.txt"
  sed '/^torch==/d' requirements/lock.txt >"$env/lock.txt"
  pip_install install -r "$env/requirements.txt" -c "$env/lock.txt"
  echo "$PWD/build/torch-$version/package" \
    >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidegauge.pth"
  touch "$env/.ready"
}

if [ -z "${TORCH_ENV:-}" ] && [ ! -e "$env/.ready" ]; then set_up; fi
found=$("$python" -c 'import torch; print(torch.__version__)')
[ "$found" = "$version" ] || [ "${found%+*}" = "$version" ] ||
  die "$env has torch $found, but TORCH is $version; remove the folder and run make again"
