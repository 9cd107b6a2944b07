"""Defines how a command is made for a connection, and the times of opening one and of trying again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pravega_common.wire import commands as c

connect_time_max_s: Final = 5.0
first_request_id: Final = 1 << 62
"""Above all offsets of a segment, which a plain Pravega may put in the place of a request's id
(``replies.answered_by``)."""
retry_delay_min_s: Final = 0.02
retry_delay_max_s: Final = 2.0
"""The pauses of a writer or reader of a range before it looks for its store again; doubled up to the second."""

MakeCommand = Callable[[int], c.Command]
"""Builds the command once its request id is known."""


def with_token(make: MakeCommand, token: str) -> MakeCommand:
    """Builds the same command with a token; every request has a field for it."""
    if not token:
        return make

    def stamped(request_id: int) -> c.Command:
        return make(request_id).with_fields(token=token)

    return stamped
