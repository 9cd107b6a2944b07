"""Decides who may speak for a sink: who shows its secret. Pure rules; records hold a hash and never the secret.

The first call that shows a secret gives it to a sink that has none: a new one, or one that an older version wrote. From
then on nobody else joins, fences or asks about the sink, however much is permitted on its streams.
"""

from __future__ import annotations

import hashlib
import hmac

from pravega_common.errors import InvalidArgument
from pravega_common.model.transaction_sets import sink_secret_bytes


def hash_of(secret: bytes) -> str:
    """The SHA-256 of a secret in hex; empty for none. It is random and long, so one round of one hash keeps it."""
    if not secret:
        return ""
    if len(secret) != sink_secret_bytes:
        raise InvalidArgument(f"the secret of a sink has {len(secret)} bytes: it must have {sink_secret_bytes}")
    return hashlib.sha256(secret).hexdigest()


def is_stranger(kept: str, shown: str) -> bool:
    """Whether a call that shows one hash may not speak for the sink that keeps the other; both may be empty."""
    return bool(kept) and not hmac.compare_digest(kept, shown)


def refusal(query_id: str, destination: str, shown: str) -> str:
    """The sentence for a stranger, with the way out for an owner who lost the secret."""
    said = "another secret than" if shown else "no secret, unlike"
    return (
        f"this call about the sink of query {query_id} into {destination} shows {said} the run that made it; the "
        "secret is kept with the query's checkpoint (docs/security.md 6); if it is lost, an operator lets the next run "
        "show a new one: pravega-spark sink forget QUERY --secret-only"
    )
