# SPDX-License-Identifier: BSD-3-Clause
"""One file a subject; each has a `run()` that returns ratios."""
