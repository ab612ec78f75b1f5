# SPDX-License-Identifier: BSD-3-Clause
"""Reads the pages that commands write."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any


def unpack(path: str) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes that its tables refer to."""
    (text,) = re.findall(r'id="data">([^<]*)<', Path(path).read_text())
    data = zlib.decompress(base64.b64decode(text))
    (length,) = struct.unpack_from("<I", data)
    return json.loads(data[4 : 4 + length]), data[4 + length :]
