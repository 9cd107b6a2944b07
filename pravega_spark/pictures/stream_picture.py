"""Draws a stream's key space over its epochs: a rectangle for each segment, epochs to the right, keys upwards."""

from __future__ import annotations

import math
from typing import Final

from pravega_common.byte_text import text_of_bytes
from pravega_spark.pictures import svg
from pravega_spark.pictures.stream_history import DrawnSegment, StreamHistory

width_px: Final = 860
height_px: Final = 360
left_px: Final = 40
right_px: Final = 16
top_px: Final = 40
bottom_px: Final = 56
label_width_px: Final = 84
label_height_px: Final = 16
epoch_labels_max: Final = 12

shades: Final = ("#e8eef7", "#c9dbf2", "#a3c3ea", "#76a5df", "#4a84cf", "#2a63b0", "#17468a")
"""From no data to the most; each step holds about twice as much as the one before."""
gone: Final = "#eceff3"
open_edge: Final = "#2f9e63"


def draw_stream(history: StreamHistory) -> svg.Picture:
    """Draw the segments of a stream; a shade says how much data can be read of each."""
    fullest = max((item.held_bytes or 0 for item in history.segments), default=0)
    parts = [_segment(item, history, fullest) for item in history.segments]
    parts += [_keys(), _epochs(history), _heading(history), _legend(fullest)]
    return svg.picture(_title(history), width_px, height_px, parts)


def shade(held_bytes: int, fullest: int) -> str:
    """The colour of a segment beside the one that holds most."""
    if held_bytes <= 0:
        return shades[0]
    steps = math.floor(math.log2(fullest / held_bytes))
    return shades[max(1, len(shades) - 1 - steps)]


def _title(history: StreamHistory) -> str:
    held = sum(item.held_bytes or 0 for item in history.segments)
    open_count = sum(item.fate == "open" for item in history.segments)
    return (
        f"Stream {history.scope}/{history.stream}: epochs {history.first_epoch} to {history.last_epoch}, "
        f"{len(history.segments)} segments, {open_count} of them open, {text_of_bytes(held)}"
    )


def _heading(history: StreamHistory) -> str:
    older = "; older epochs are left out" if history.has_older else ""
    facts = _title(history).partition(": ")[2]
    name = svg.text(left_px, 18, f"{history.scope}/{history.stream}", bold=True)
    return name + svg.text(left_px, 33, facts + older, fill=svg.soft_ink)


def _edge(epoch: int, history: StreamHistory) -> float:
    """Returns the left edge of an epoch in pixels."""
    count = history.last_epoch - history.first_epoch + 1
    return left_px + (width_px - left_px - right_px) * (epoch - history.first_epoch) / count


def _height(key: float) -> float:
    """Returns the height of a key, in pixels from the top."""
    return height_px - bottom_px - (height_px - top_px - bottom_px) * key


def _segment(item: DrawnSegment, history: StreamHistory, fullest: int) -> str:
    left, right = _edge(item.first_epoch, history), _edge(item.last_epoch + 1, history)
    top, bottom = _height(item.key_high), _height(item.key_low)
    held = "not known any more" if item.held_bytes is None else text_of_bytes(item.held_bytes)
    said = (
        f"{item.name}: keys {item.key_low:.4g} to {item.key_high:.4g}, epochs {item.first_epoch} to "
        f"{item.last_epoch}, {item.fate}, {held}"
    )
    fill = gone if item.fate == "truncated" else shade(item.held_bytes or 0, fullest)
    drawn = svg.element(
        "rect", svg.tip(said), x=left, y=top, width=right - left, height=bottom - top, fill=fill, stroke=svg.paper
    )
    if item.fate == "open":
        drawn += svg.element("rect", x=right - 3, y=top + 1, width=3, height=max(1.0, bottom - top - 2), fill=open_edge)
    if right - left >= label_width_px and bottom - top >= label_height_px:
        dark = fill in shades[4:]
        label = svg.text(left + 6, (top + bottom) / 2 + 4, item.name, fill=svg.paper if dark else svg.ink)
        drawn += label
    return drawn


def _keys() -> str:
    return "".join(
        svg.text(left_px - 6, _height(key) + 4, f"{key:g}", anchor="end", fill=svg.soft_ink) for key in (0, 0.5, 1)
    )


def _epochs(history: StreamHistory) -> str:
    count = history.last_epoch - history.first_epoch + 1
    every = -(-count // epoch_labels_max)
    baseline = height_px - bottom_px + 16
    return "".join(
        svg.text((_edge(epoch, history) + _edge(epoch + 1, history)) / 2, baseline, str(epoch), anchor="middle")
        for epoch in range(history.first_epoch, history.last_epoch + 1, every)
    )


def _legend(fullest: int) -> str:
    baseline, side = height_px - 12, 12
    parts = [svg.text(left_px, baseline, "epochs to the right, keys upwards", fill=svg.soft_ink)]
    at = 330.0
    for color, said in ((gone, "truncated"), (shades[0], "empty"), (shades[-1], f"up to {text_of_bytes(fullest)}")):
        parts.append(svg.element("rect", x=at, y=baseline - 10, width=side, height=side, fill=color, stroke=svg.line))
        parts.append(svg.text(at + side + 5, baseline, said, fill=svg.soft_ink))
        at += side + 26 + 6.5 * len(said)
    parts.append(svg.element("rect", x=at, y=baseline - 10, width=3, height=side, fill=open_edge))
    parts.append(svg.text(at + 8, baseline, "open", fill=svg.soft_ink))
    return "".join(parts)
