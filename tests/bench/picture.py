"""Draws rates of both sides as bars, an SVG for documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tests.bench.comparison import ratio
from tests.bench.figures import Result

CASE_TITLES: Final = {
    "write": "Spark → stream, batch",
    "stream-write": "Spark → stream, streaming, exactly once",
    "read": "stream → Spark, batch",
    "stream-read": "stream → Spark, streaming",
}
WIDTH_PX: Final = 860
BARS_LEFT_PX: Final = 90
BARS_RIGHT_PX: Final = 690
"""Bars end here at most; their figures follow."""
BAR_PX: Final = 11
ROW_PX: Final = 34
TITLE_PX: Final = 30
OURS_FILL: Final = "#2a63b0"
OTHER_FILL: Final = "#b9bec6"


def picture(results: Sequence[Result], other: str) -> str:
    """Returns the drawing: a row for each case and size of ours, with the other side's bar below ours.

    Bars of all rows have one scale, megabytes a second.
    """
    by_key = {(item["case"], item["event_bytes"], item["side"]): item for item in results}
    top = max(item["megabytes_per_second"] for item in results)
    px_per_megabyte = (BARS_RIGHT_PX - BARS_LEFT_PX) / top
    parts: list[str] = []
    y = 14
    for case, title in CASE_TITLES.items():
        ours = [item for item in results if item["case"] == case and item["side"] == "ours"]
        if not ours:
            continue
        parts.append(_text(10, y + 12, title, weight=600))
        y += TITLE_PX
        for item in ours:
            theirs = by_key.get((case, item["event_bytes"], other))
            parts += _row(y, item, theirs, px_per_megabyte)
            y += ROW_PX
    parts += _legend(y + 8, other)
    return _document("".join(parts), y + 36, other)


def _row(y: int, ours: Result, theirs: Result | None, px_per_megabyte: float) -> Iterator[str]:
    yield _text(10, y + BAR_PX + 4, _size(ours["event_bytes"]))
    label = f"{ours['megabytes_per_second']:.0f} MB/s"
    if theirs is not None:
        label += f", {ratio(ours, theirs):.2f} ×"
    yield _bar(y, ours, px_per_megabyte, OURS_FILL, label)
    if theirs is not None:
        yield _bar(y + BAR_PX + 1, theirs, px_per_megabyte, OTHER_FILL, f"{theirs['megabytes_per_second']:.0f}")


def _bar(y: int, item: Result, px_per_megabyte: float, fill: str, label: str) -> str:
    width = item["megabytes_per_second"] * px_per_megabyte
    bar = f'<rect x="{BARS_LEFT_PX}" y="{y}" width="{width:.1f}" height="{BAR_PX}" fill="{fill}"/>'
    return bar + _text(BARS_LEFT_PX + width + 6, y + BAR_PX - 1, label)


def _legend(y: int, other: str) -> Iterator[str]:
    for x, fill, name in ((BARS_LEFT_PX, OURS_FILL, "pravega-spark"), (BARS_LEFT_PX + 140, OTHER_FILL, other)):
        yield f'<rect x="{x}" y="{y}" width="{BAR_PX}" height="{BAR_PX}" fill="{fill}"/>'
        yield _text(x + BAR_PX + 5, y + BAR_PX - 1, name)


def _size(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < 1_000 else f"{size_bytes / 1_000:g} KB"


def _text(x: float, y: float, text: str, weight: int = 400) -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" fill="#222222">{escape(text)}</text>'


def _document(body: str, height_px: int, other: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height_px}" width="{WIDTH_PX}" '
        f'height="{height_px}" role="img" style="max-width:100%;height:auto" font-family="system-ui,sans-serif" '
        f'font-size="12"><title>Megabytes a second of pravega-spark and of {escape(other)}</title>'
        f'<rect width="{WIDTH_PX}" height="{height_px}" fill="#ffffff"/>{body}</svg>\n'
    )
