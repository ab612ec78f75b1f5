# SPDX-License-Identifier: BSD-3-Clause
"""All patches of torch's Python, and the torch version that they are written for."""
