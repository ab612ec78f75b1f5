# SPDX-License-Identifier: BSD-3-Clause
"""The command `tidegauge`: one module a command, put together in `main`.

Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
2 wrong usage, 3 does not fit.
"""
