# SPDX-License-Identifier: BSD-3-Clause
"""Small helpers that every part may use; they need nothing but the standard library."""
