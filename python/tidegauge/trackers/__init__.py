# SPDX-License-Identifier: BSD-3-Clause
"""The trackers, their tables, and the recorder of traces."""
