#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tidy.sh <build folder>: runs clang-tidy on the C++ files that changed since TIDY_BASE. The default
# is the merge base with origin, or ten commits ago if that is HEAD. `TIDY_BASE=all`: all files.
set -euo pipefail
cd "$(dirname "$0")/.."

changed_files() {
  if [ "${TIDY_BASE:-}" = all ]; then
    git ls-files -co --exclude-standard '*.cpp' '*.h'
    return
  fi
  local head base
  head=$(git rev-parse HEAD)
  base=${TIDY_BASE:-$(git merge-base HEAD origin/HEAD 2>/dev/null || true)}
  if [ -z "$base" ] || [ "$base" = "$head" ]; then
    base=$(git rev-list -n 11 HEAD | tail -n 1)
  fi
  git diff --name-only --diff-filter=d "$base" -- '*.cpp' '*.h'
  git ls-files -o --exclude-standard '*.cpp' '*.h'
}

# A header is checked through the .cpp of the same name.
mapfile -t files < <(changed_files | sed 's/\.h$/.cpp/' | sort -u |
  while read -r file; do
    ! grep -qF "\"file\": \"$PWD/$file\"" "$1/compile_commands.json" || echo "$file"
  done)
echo "clang-tidy: ${#files[@]} files"
[ ${#files[@]} -gt 0 ] || exit 0
# The flags and precompiled headers are GCC's: clang reads the headers as text, and -w turns off its
# own warnings.
printf '%s\0' "${files[@]}" |
  xargs -0 -r -n 1 -P "$(nproc)" clang-tidy -p "$1" --quiet --extra-arg=-w 2>/dev/null
