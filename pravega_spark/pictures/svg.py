"""Writes the elements of a drawing as SVG text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

ink: Final = "#1f2430"
soft_ink: Final = "#6b7280"
line: Final = "#d5d9e0"
paper: Final = "#ffffff"
text_px: Final = 12
"""Height of text; a character is about half as wide."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing: notebooks show it, and ``save`` keeps it."""

    title: str
    """One sentence that says what is drawn: for people who hear it, and for ``print``."""
    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.title

    def save(self, path: str | Path) -> None:
        """Write the drawing to an ``.svg`` file, which browsers show."""
        Path(path).write_text(self.svg, encoding="utf-8")


def element(name: str, /, inner: str = "", **attributes: str | float) -> str:
    """An element with escaped attributes; ``inner`` is SVG already. An underscore in a name is a hyphen."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"' for key, value in attributes.items())
    return f"<{name}{said}>{inner}</{name}>" if inner else f"<{name}{said}/>"


def text(x: float, y: float, content: str, *, anchor: str = "start", fill: str = ink, bold: bool = False) -> str:
    """A line of text; ``anchor``: start, middle or end."""
    weight = "600" if bold else "400"
    return element("text", escape(content), x=x, y=y, text_anchor=anchor, fill=fill, font_weight=weight)


def tip(content: str) -> str:
    """Text that shows when the mouse rests on the element around it."""
    return element("title", escape(content))


def polyline(points: Iterable[tuple[float, float]], color: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=joined, fill="none", stroke=color, stroke_width=1.5)


def picture(title: str, width: float, height: float, parts: Sequence[str]) -> Picture:
    """A drawing of this size in pixels on paper of its own, so that it can be read in dark notebooks too."""
    inner = [tip(title), element("rect", width=width, height=height, fill=paper), *parts]
    return Picture(
        title,
        element(
            "svg",
            "".join(inner),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {width:g} {height:g}",
            width=width,
            height=height,
            role="img",
            style="max-width:100%;height:auto",
            font_family="system-ui,sans-serif",
            font_size=text_px,
        ),
    )


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
