# SPDX-License-Identifier: BSD-3-Clause
"""Small helpers that every part may use. Importing them does not import torch."""
