"""Resolves the positions that a user names: ``head``, ``tail``, a time, or the text of a stream cut."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import segment_epoch, segment_name, segment_number
from pravega_common.runtime.system_time import system_time_ms
from pravega_common.stream_cut import StreamCut
from pravega_spark.commands.connection import connected_gateway
from pravega_spark.commands.quantities import is_time, parse_time_ms
from pravega_streams.client import StreamClient

_HEAD = ("head", "earliest")
_TAIL = ("tail", "latest")
_WORDS: Final = "head, tail"
_WORDS_AND_TIMES: Final = "head, tail, a time such as 2026-01-31T12:00:00Z or 12h"


def resolve_cut(client: StreamClient, scope: str, stream: str, text: str, others: str = _WORDS) -> SegmentOffsets:
    """Returns the offset by segment id. ``InvalidArgument`` unless the text is a valid cut of this stream.

    ``others``: the positions beside cuts, named where the text is no position.
    """
    word = text.strip().lower()
    if word in _HEAD:
        return client.head_cut(scope, stream)
    if word in _TAIL:
        return client.tail_cut(scope, stream)
    try:
        cut = StreamCut.from_text(text.strip())
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{error}; a position is {others}, or a text that pravega-spark stream cut prints"
        ) from error
    if cut.is_unbounded:
        raise InvalidArgument("'UNBOUNDED' names no position; use head or tail")
    if cut.scoped_stream != f"{scope}/{stream}":
        raise InvalidArgument(f"the stream cut is one of {cut.scoped_stream}, not of {scope}/{stream}")
    positions = dict(cut.offsets)
    check_valid(client, scope, stream, positions, f"the stream cut {cut}")
    return positions


def resolve_position(
    client: StreamClient, controller: str, scope: str, stream: str, text: str, *, as_end: bool
) -> SegmentOffsets:
    """Returns the position of a cut as ``resolve_cut`` does, or of a time.

    A time is an ISO time (UTC unless it says otherwise) or an age such as ``12h``, by the stores' clocks. As a start
    nothing that was written then or later lies before it, as an end everything from before does. Their index knows
    times to some 64 KiB of each segment. ``UnsupportedOperation`` where the stores keep none.
    """
    if not is_time(text):
        return resolve_cut(client, scope, stream, text, _WORDS_AND_TIMES)
    from pravega_spark.source.stream_positions import StreamPositions

    time_ms = parse_time_ms(text, "the time", system_time_ms(), as_end=as_end)
    with connected_gateway(controller) as gateway:
        positions = StreamPositions(gateway, scope, stream, fail_on_data_loss=False)
        return positions.cut_at_time(time_ms, as_end=as_end)


def check_valid(client: StreamClient, scope: str, stream: str, cut: SegmentOffsets, name: str) -> None:
    """Raises ``InvalidArgument`` unless the cut's segments cover the stream's keys; ``name`` begins the message."""
    try:
        if client.controller.is_cut_valid(scope, stream, cut):
            return
        why = "its segments do not cover the keys of the stream, each once"
    except InvalidArgument as error:
        why = str(error)
    raise InvalidArgument(
        f"{name} is not valid in {scope}/{stream}: {why}; pravega-spark stream cut {scope}/{stream} prints one that is"
    )


def segment_json(scope: str, stream: str, identifier: int) -> dict[str, object]:
    """Names a segment for ``--json``: ``segment`` is its id, as in Spark's column ``segment_id``."""
    return {
        "segment": identifier,
        "name": segment_name(scope, stream, identifier),
        "number": segment_number(identifier),
        "epoch": segment_epoch(identifier),
    }


def cut_json(scope: str, stream: str, cut: SegmentOffsets) -> dict[str, object]:
    """Formats a cut for ``--json``: its text and its segments."""
    return {
        "stream": f"{scope}/{stream}",
        "text": StreamCut(scope, stream, cut).as_text(),
        "segments": [{**segment_json(scope, stream, item), "offset": cut[item]} for item in sorted(cut)],
    }
