#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_oracle.sh [version]: runs the tests that need a torch with CUDA, with the torch in .venv or with
# the one that build_for_torch.sh has built for.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

env=.venv
if [ $# -gt 0 ]; then
  env=${TORCH_ENV:-build/envs/torch-$1}
  export PYTHONPATH=$PWD/build/torch-$1/package
fi
found=$("$env/bin/python" -c 'import torch; print(torch.version.cuda and torch.__version__)')
[ "$found" != None ] ||
  die "the torch in $env has no CUDA; run: make oracle TORCH=$(sed -n 's/^torch==//p' requirements/build.txt)"
exec "$env/bin/python" -m pytest -q tests/standin tests/python/_torch/test_claimed_cuda.py
