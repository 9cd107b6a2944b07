"""Defines the identity of a container's log: random, made with the log, never changed.

It is in every checkpoint of the log and in the epoch marks of Tier 2, so that a log and a Tier 2 that do not belong
together are found before anything is written.
"""

from __future__ import annotations

import secrets
from typing import Final

identity_bytes: Final = 16
unknown_identity: Final = bytes(identity_bytes)
"""Stands for the identity of a log whose checkpoints were all written before identities existed."""


def new_identity() -> bytes:
    """128 random bits."""
    return secrets.token_bytes(identity_bytes)
