"""Tells what became of a call of which several attempts failed."""

from __future__ import annotations

from pravega_common.errors import InvalidArgument, Outcome, PravegaError, UnknownOutcome


def doubt_about_call(last: PravegaError, unknown: PravegaError | None, *, is_closed: bool) -> UnknownOutcome | None:
    """The error of a call that ends with its ``last`` attempt, if it is not the error of that.

    ``unknown``: that of an earlier attempt which was sent and not answered. That the last was not done, or found the
    client closed, says nothing of the earlier one. Other refusals tell what the last attempt has met, as a segment that
    is there by now, or sealed: they stay.
    """
    found_closed = is_closed and isinstance(last, InvalidArgument)
    if unknown is None or not (found_closed or last.outcome is Outcome.FAILED):
        return None
    return UnknownOutcome(f"{last}; an earlier attempt was sent and not answered, and may have been done: {unknown}")
