"""Makes ids of requests that ask for the same: a request that waits is joined, and not added again."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

digest_chars: Final = 16
"""The length of a digest, in hexadecimal digits."""


def digest_of(value: Any) -> str:
    """Returns a digest of what JSON takes, to tell requests about one thing apart by what they ask for."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:digest_chars]
