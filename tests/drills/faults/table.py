"""Writes the table of a run as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.drills.faults.run import Row
from tests.drills.faults.watch import ALERTS, CONTROLLERS, METRIC, NO_ANSWER, STORES, WINDOW, Sighting
from tests.support.alert_rules import alerts

COLUMNS: Final = (
    "fault",
    "controllers",
    "stores",
    "window",
    "alert due, + `for`",
    "metric",
    "doctor",
    "well again",
)
_FOR: Final = {rule["alert"]: rule["for"] for rule in alerts()}


def markdown(rows: Sequence[Row]) -> str:
    """The rows, and below them the remedies that came with the problems."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS)), *(_line(_cells(row)) for row in rows), ""]
    remedies = {
        word: sighting.remedy
        for row in rows
        for words in row.sightings.values()
        for word, sighting in words.items()
        if sighting.remedy
    }
    lines += [_line(("problem", "remedy")), _line(("---", "---"))]
    lines += [_line((f"`{word}`", remedy)) for word, remedy in sorted(remedies.items())]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    found = {source: _during(row, words) for source, words in row.sightings.items()}
    return [
        f"`{row.fault}`: {row.what}",
        _told(found.get(CONTROLLERS, {})),
        _told(found.get(STORES, {})),
        _told(found.get(WINDOW, {})),
        _told(found.get(ALERTS, {}), _FOR),
        _told(found.get(METRIC, {})),
        ", ".join(row.doctor) or "–",
        f"{row.well_after_s:.0f} s",
    ]


def _during(row: Row, words: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """Those that were told before the fault was mended; not what stores said while they recovered."""
    return {word: sighting for word, sighting in words.items() if sighting.first_s <= row.lasted_s}


def _told(words: Mapping[str, Sighting], lasting: Mapping[str, str] | None = None) -> str:
    """Each word with its second, the earliest first."""
    ordered = sorted(words.items(), key=lambda item: item[1].first_s)
    texts = []
    for word, sighting in ordered:
        shown = word if word == NO_ANSWER else f"`{word}`"
        more = f" + {lasting[word]}" if lasting else ""
        texts.append(f"{shown} {sighting.first_s:.0f} s{more}")
    return "<br>".join(texts) or "–"


def _line(cells: Sequence[str]) -> str:
    text = " | ".join(cell.replace("|", "/") for cell in cells)
    return f"| {text} |"
