# SPDX-License-Identifier: BSD-3-Clause
"""The trackers, what they print, and the recorder of what they see."""
