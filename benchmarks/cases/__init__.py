# SPDX-License-Identifier: BSD-3-Clause
"""One file per subject; each has a `run()` that returns ratios."""
