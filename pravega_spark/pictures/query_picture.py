"""Draws a streaming query's lag, speed and batches over time."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Final

from pravega_common.byte_text import text_of_bytes
from pravega_spark.pictures import svg
from pravega_spark.pictures.query_history import Report

width_px: Final = 860
band_px: Final = 96
left_px: Final = 90
right_px: Final = 16
top_px: Final = 40
bottom_px: Final = 30
gap_px: Final = 26

Value = Callable[[Report], float | None]


def draw_query(name: str, reports: Sequence[Report]) -> svg.Picture:
    """Draw up to three bands: how far the query is behind, its rows a second, and the seconds a batch took."""
    counts_events = all(item.lag.events is not None for item in reports if item.lag)
    bands: list[tuple[str, Value, Callable[[float], str], str]] = [
        ("rows a second", lambda item: item.rows_per_s, _number, "#4a84cf"),
        ("seconds a batch", lambda item: item.batch_s, _number, "#8a6fc9"),
    ]
    if any(item.lag for item in reports):
        behind: Value = _events if counts_events else _bytes
        bands.insert(0, ("behind", behind, _number if counts_events else _size, "#c7563c"))
    height = top_px + len(bands) * (band_px + gap_px) + bottom_px - gap_px
    title = _title(name, reports, counts_events)
    parts = [svg.text(16, 18, name, bold=True), svg.text(16, 33, title.partition(": ")[2], fill=svg.soft_ink)]
    for index, (label, value, said, color) in enumerate(bands):
        parts.append(_band(label, top_px + index * (band_px + gap_px), reports, value, said, color))
    if reports:
        parts.append(_times(reports, height - 8))
    return svg.picture(title, width_px, height, parts)


def _title(name: str, reports: Sequence[Report], counts_events: bool) -> str:
    if not reports:
        return f"Query {name}: no batch has been reported yet"
    last = reports[-1]
    said = f"Query {name}: batch {last.batch_id}, {_number(last.rows_per_s)} rows a second"
    if last.lag is None:
        return said
    behind = f"{_number(last.lag.events or 0)} events" if counts_events else text_of_bytes(last.lag.bytes)
    return f"{said}, {behind} behind"


def _band(
    label: str, top: float, reports: Sequence[Report], value: Value, said: Callable[[float], str], color: str
) -> str:
    """One chart from zero to its highest value."""
    known = [(item, found) for item in reports if (found := value(item)) is not None]
    highest = max((found for _, found in known), default=0.0)
    base = top + band_px
    parts = [
        svg.element("line", x1=left_px, x2=width_px - right_px, y1=base, y2=base, stroke=svg.line),
        svg.text(left_px - 8, top + 12, said(highest), anchor="end", fill=svg.soft_ink),
        svg.text(left_px - 8, base, "0", anchor="end", fill=svg.soft_ink),
        svg.text(left_px + 4, top + 12, label),
    ]
    points = [(_across(item, reports), base - (band_px - 18) * found / (highest or 1.0)) for item, found in known]
    parts.append(svg.polyline(points, color))
    for (item, found), (x, y) in zip(known, points, strict=True):
        told = svg.tip(f"{_clock(item.at_s)}, batch {item.batch_id}: {said(found)}")
        parts.append(svg.element("circle", told, cx=x, cy=y, r=2.5, fill=color))
    return "".join(parts)


def _across(item: Report, reports: Sequence[Report]) -> float:
    first, last = reports[0].at_s, reports[-1].at_s
    share = (item.at_s - first) / (last - first) if last > first else 0.5
    return left_px + (width_px - left_px - right_px) * share


def _times(reports: Sequence[Report], baseline: float) -> str:
    first = svg.text(left_px, baseline, _clock(reports[0].at_s), fill=svg.soft_ink)
    return first + svg.text(width_px - right_px, baseline, _clock(reports[-1].at_s), anchor="end", fill=svg.soft_ink)


def _clock(at_s: float) -> str:
    return datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC).strftime("%H:%M:%S UTC")


def _events(item: Report) -> float | None:
    return None if item.lag is None else item.lag.events


def _bytes(item: Report) -> float | None:
    return None if item.lag is None else item.lag.bytes


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


def _size(value: float) -> str:
    return text_of_bytes(int(value))
