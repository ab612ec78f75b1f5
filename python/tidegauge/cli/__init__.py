# SPDX-License-Identifier: BSD-3-Clause
"""The command `tidegauge`: one module per command; `main` finds and runs them.

Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 failure,
2 wrong usage, 3 does not fit or exceeds a limit.
"""
