"""Makes and removes the scope in which ``doctor`` writes and reads a few events, and finds those left behind."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from pravega_common.errors import AccessDenied, RejectedError, ScopeNotEmpty
from pravega_spark.commands.findings import Tell
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter

STREAM: Final = "probe"
scratch_events: Final = 20
leftover_age_min_s: Final = 600.0
"""Age of a scope that no run uses any more: a run ends within half a minute, with Spark within some minutes."""
leftovers_max: Final = 10
"""Scopes of earlier runs that one run removes."""
searched_scopes_max: Final = 5_000
"""Names of scopes that one run looks through for them: five pages of a listing."""
_NAME: Final = re.compile(r"doctor-([0-9a-f]{8})-[0-9a-f]{12}")


def scratch_scope(now_s: float | None = None) -> str:
    """The name of a new scope; it tells when it was made."""
    return f"doctor-{int(time.time() if now_s is None else now_s):08x}-{secrets.token_hex(6)}"


def made_at_s(scope: str) -> int | None:
    """Reads out of its name when a scope was made; ``None`` for a name that no doctor gave."""
    match = _NAME.fullmatch(scope)
    return None if match is None else int(match[1], 16)


def make_scratch(client: StreamClient, scope: str) -> list[bytes]:
    """Makes a scope, and a stream in it with a few events; returns them."""
    client.controller.create_scope(scope)
    return make_events(client, scope, lambda _: None)


def make_events(client: StreamClient, scope: str, tell: Tell, place: str = "") -> list[bytes]:
    """Makes a stream with a few events in a scope that is there; returns them. ``place``: of its segment, in words."""
    events = [f"event {number}".encode() for number in range(scratch_events)]
    tell(f"making a stream with a segment{place}")
    client.controller.create_stream(scope, STREAM)
    tell(f"writing {len(events)} events{place}")
    with EventWriter(client, scope, STREAM) as writer:
        for event in events:
            writer.write(event, "key")
    return events


def remove_scratch(client: StreamClient, scope: str) -> str:
    # Who may make scopes and not look into them has made no stream: then the scope is empty.
    with contextlib.suppress(AccessDenied):
        if client.controller.stream_exists(scope, STREAM):
            client.controller.seal_stream(scope, STREAM)
            client.controller.delete_stream(scope, STREAM)
    client.controller.delete_scope(scope)
    return "done"


def leftovers(client: StreamClient, now_s: float) -> Iterator[str]:
    """Finds old scopes of earlier runs that were cut off; one with anything else in it belongs to somebody."""
    for scope in islice(client.controller.list_scopes(), searched_scopes_max):
        made_s = made_at_s(scope)
        if made_s is not None and now_s - made_s > leftover_age_min_s:
            try:
                streams = {name for name in client.controller.list_streams(scope) if not name.startswith("_")}
            except RejectedError:
                continue  # gone meanwhile, or not ours to read
            if streams <= {STREAM}:
                yield scope


def remove_leftovers(client: StreamClient, now_s: float) -> list[str]:
    """Removes what earlier runs left behind; returns the names of the scopes."""
    removed = []
    for scope in islice(leftovers(client, now_s), leftovers_max):
        try:
            remove_scratch(client, scope)
        except (AccessDenied, ScopeNotEmpty):
            continue  # of another user, who removes it
        removed.append(scope)
    return removed
