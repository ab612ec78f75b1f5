#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the title of a commit message (CONTRIBUTING.md, "Commits"). Usage: check_commit_title.sh FILE
set -euo pipefail

title=$(grep -v '^#' "$1" | head -n 1)
fail() {
  echo "invalid commit title '$title': $1" >&2
  exit 1
}

[[ $title =~ ^(fixup!|squash!|Merge|Revert)\  ]] && exit 0
[[ ${#title} -le 72 ]] || fail "it has ${#title} characters (at most 72)"
[[ $title =~ ^[a-z0-9_/-]+:\ [a-z] ]] || fail "expected 'area: imperative sentence'"
[[ $title != *';'* ]] || fail "one topic per commit (no ';')"
[[ $title != *. ]] || fail "no full stop at the end"
