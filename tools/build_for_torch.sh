#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build_for_torch.sh <version>: builds for another torch than the pinned one, such as 2.14.1 or
# 2.13.0+cu130. Each version has its own environment (setup_torch_env.sh), build folder and package,
# so that several exist side by side:
#
#   build/torch-<version>           the build folder
#   build/torch-<version>/package   the package: compiled parts, and links to the Python sources
#
# CMAKE_ARGS: further arguments for CMake.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

version=$1
out=$PWD/build/torch-$version
env=${TORCH_ENV:-$PWD/build/envs/torch-$version}

tools/check_tools.sh
tools/setup_torch_env.sh "$version"
PATH=$env/bin:$PWD/.venv/bin:$PATH # the pinned ninja
# Compiles several files at once, as pip does (pyproject.toml).
unity=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8)
# shellcheck disable=SC2086 # CMAKE_ARGS is a list
cmake -S . -G Ninja --log-level=ERROR -DPython_EXECUTABLE="$env/bin/python" -B "$out" \
  "${unity[@]}" ${CMAKE_ARGS:-} >/dev/null
cmake --build "$out"
rm -rf "$out/package"
cmake --install "$out" --prefix "$out/package/tidegauge" >/dev/null
# Links, so that a change in a .py file takes effect at once.
(cd python && git ls-files -co --exclude-standard tidegauge) | while read -r file; do
  mkdir -p "$out/package/$(dirname "$file")"
  ln -s "$PWD/python/$file" "$out/package/$file"
done
echo "built for torch $version; run PYTHONPATH=$out/package $env/bin/python"
