"""Orders the keys of a hash table for iteration: arbitrarily, and always the same (docs/wire-protocol.md 2.2)."""

from __future__ import annotations

import hashlib
from typing import Final

order_key_bytes: Final = 32


def order_key(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
