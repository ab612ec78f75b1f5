# SPDX-License-Identifier: BSD-3-Clause
"""All that we patch in torch, and the version of torch that it is made for."""
