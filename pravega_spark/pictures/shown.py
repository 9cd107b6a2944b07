"""Draws a stream or a streaming query for a notebook: ``pravega_spark.show(...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pravega_common.errors import InvalidArgument

if TYPE_CHECKING:
    from pravega_spark.pictures.svg import Picture

# A planning process imports this module, and must not pay for drawing: what draws is imported where it is used.


def show(what: Any, **options: Any) -> Picture:
    """Draw a stream, given as ``"scope/stream"``, or what a streaming query reported of late.

    Of a stream: the keys of its segments over its newest epochs; ``options`` are those of a read, such as
    ``controller`` and ``ca_file``. Of a query: how far it is behind, its speed and its batches. A cell of a notebook
    that ends with it shows the drawing; elsewhere ``show(...).save("picture.svg")`` keeps it.
    ``InvalidArgument`` for anything else; errors of the cluster as a read has them.
    """
    if isinstance(what, str):
        return _stream(what, options)
    if hasattr(what, "recentProgress") and not options:
        from pravega_spark.pictures.query_history import read_reports
        from pravega_spark.pictures.query_picture import draw_query

        return draw_query(str(what.name or what.id), read_reports(what.recentProgress))
    raise InvalidArgument(
        f"show() draws a stream, as 'scope/stream' with options of a read, or a streaming query without options; "
        f"it was given {type(what).__name__}" + (f" with {', '.join(options)}" if options else "")
    )


def _stream(name: str, options: dict[str, Any]) -> Picture:
    from pravega_spark.gateway.connect import gateway_for
    from pravega_spark.options.definitions import Use
    from pravega_spark.options.read_options import ReadOptions
    from pravega_spark.pictures.stream_history import read_history
    from pravega_spark.pictures.stream_picture import draw_stream

    texts = {key: str(value) for key, value in options.items()}
    parsed = ReadOptions.parse({**texts, "path": name}, Use.BATCH_READ)
    (scope, stream), *others = parsed.streams or ((parsed.scope, ""),)
    if not stream or others:
        raise InvalidArgument(f"show() draws one stream, given as 'scope/stream'; it was given '{name}'")
    return draw_stream(read_history(gateway_for(parsed.controller), scope, stream))
