#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup_torch_env.sh <version>: makes build/envs/torch-<version>, an environment with this torch
# (2.14.1, 2.13.0+cu130) and everything else that our build and our tests need; does nothing if it
# exists. TORCH_ENV names another environment, which must have this torch already.
#
# A version without +cpu comes from the package index alone: where pip has local files, these are CPU
# builds. One with +cpu comes from wherever pip finds it. If .venv has this torch, the environment is
# a link to it, which saves the gigabytes of a second torch with CUDA.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

version=$1
env=${TORCH_ENV:-$PWD/build/envs/torch-$version}
python=$env/bin/python

# find_torch <environment>: its version of torch; fails if it has none.
find_torch() {
  "$1/bin/python" -c 'import torch; print(torch.__version__)'
}

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
    *) (
      # Without local files, which pip's own settings may name; an index in the environment stays.
      unset PIP_FIND_LINKS PIP_EXTRA_INDEX_URL
      PIP_CONFIG_FILE=/dev/null pip_install install "torch==${version%%+*}"
    ) ;;
  esac
  sed '/^torch==/d; /^-c /d' requirements/build.txt requirements/test.txt >"$env/requirements.txt"
  # Another torch needs its own versions of setuptools, triton and the CUDA libraries.
  sed -E '/^(setuptools|torch|triton)==|^(cuda|nvidia)-/d' requirements/lock.txt >"$env/lock.txt"
  pip_install install -r "$env/requirements.txt" -c "$env/lock.txt"
  echo "$PWD/build/torch-$version/package" \
    >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidegauge.pth"
  touch "$env/.ready"
}

# Links the environment to .venv if that has this torch. A version without a suffix means the build
# with CUDA.
link_venv() {
  local found
  found=$(find_torch .venv 2>/dev/null) || return 1
  [ "$found" = "$version" ] ||
    { [ "${found%+*}" = "$version" ] && [ "${found##*+}" != cpu ]; } || return 1
  tools/setup_venv.sh test || exit 1
  mkdir -p "${env%/*}"
  ln -s ../../.venv "$env"
}

if [ -z "${TORCH_ENV:-}" ] && [ ! -e "$env/.ready" ]; then
  [ ! -L "$env" ] || rm "$env" # .venv may have another torch now
  link_venv || set_up
fi
found=$(find_torch "$env")
[ "$found" = "$version" ] || [ "${found%+*}" = "$version" ] ||
  die "$env has torch $found, but TORCH is $version; remove the folder and run make again"
