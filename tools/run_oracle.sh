#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_oracle.sh <version>: runs the tests that need a torch with CUDA, built by build_for_torch.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD/build/torch-$1/package
exec "${TORCH_ENV:-build/envs/torch-$1}/bin/python" -m pytest -q tests/standin \
  tests/python/_torch/test_claimed_cuda.py
