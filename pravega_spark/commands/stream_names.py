"""Parses the names of streams that a user gives."""

from __future__ import annotations

from pravega_common.names import split_scoped_name, validate_scope_name, validate_stream_name


def parse_stream(text: str) -> tuple[str, str]:
    """Returns scope and stream of ``scope/stream``; ``InvalidArgument`` names what is wrong."""
    scope, stream = split_scoped_name(text)
    return validate_scope_name(scope), validate_stream_name(stream)
