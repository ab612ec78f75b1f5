# SPDX-License-Identifier: BSD-3-Clause
"""`python -m tidegauge`."""

import sys

from tidegauge.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
