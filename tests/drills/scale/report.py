"""Reports progress while the drill runs, and its table and JSON at the end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.drills.scale.audit import Findings
from tests.drills.scale.job import Outcome, Run
from tests.drills.scale.plan import Plan

plain_width = 120
"""Characters of a line where the output is no terminal."""
line_every_s = 5.0


class Report:
    def __init__(self, plan: Plan) -> None:
        self.console = Console() if sys.stdout.isatty() else Console(width=plain_width)
        self._plan = plan
        self._started_s = time.monotonic()
        self._told_s = 0.0

    def say(self, text: str) -> None:
        elapsed_s = time.monotonic() - self._started_s
        self.console.print(f"{elapsed_s:6.1f} s  {text}", highlight=False)

    def tell(self, written: int, read: int, what: str) -> None:
        """A line for everything that happens, and one now and then."""
        now_s = time.monotonic()
        if not what and now_s - self._told_s < line_every_s:
            return
        self._told_s = now_s
        shares = f"written {written / self._plan.events:4.0%}, read {read / self._plan.events:4.0%}"
        self.say(f"{shares}  {what}".rstrip())

    def table(self, document: dict[str, Any]) -> None:
        table = Table(title="A stream scaled while it is written and read", show_header=False)
        for name, value in _rows(document):
            table.add_row(name, value)
        self.console.print(table)
        held = document["found"]["exact"]
        self.console.print("[bold green]each event once, in order: held" if held else "[bold red]BROKEN")


def document_of(plan: Plan, outcome: Outcome, found: Findings, seconds: float) -> dict[str, Any]:
    """All figures, for ``--json``."""
    return {
        "events": plan.events,
        "event_bytes": plan.event_bytes,
        "keys": plan.keys,
        "limits": {"events": plan.events_per_trigger, "bytes of the last run": plan.bytes_per_trigger},
        "scalings": outcome.scalings,
        "write": _figures(outcome.written, plan),
        "read": _figures(outcome.live, plan),
        "read_available_now": _figures(outcome.rest, plan),
        "found": found.as_json(),
        "seconds": round(seconds, 1),
    }


def keep(file: Path, document: dict[str, Any]) -> None:
    file.write_text(json.dumps(document, indent=1) + "\n")


def _figures(run: Run, plan: Plan) -> dict[str, Any]:
    rows = min(run.rows, plan.events)
    rate = rows / run.seconds if run.seconds else 0.0
    return {
        "events": rows,
        "batches": run.batches,
        "batch_events_max": run.batch_rows_max,
        "seconds": round(run.seconds, 1),
        "events_per_second": round(rate),
        "megabytes_per_second": round(rate * plan.event_bytes / 1e6, 1),
    }


def _rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    found = document["found"]
    path = [document["scalings"][0]["segments_before"]] if document["scalings"] else []
    path += [item["segments"] for item in document["scalings"]]
    rows = [
        ("events", f"{document['events']:,} of {document['event_bytes']} bytes, {document['keys']:,} keys"),
        ("segments", " → ".join(map(str, path)) + f" ({len(found['segments'])} in all)"),
    ]
    for name, title in (("write", "written"), ("read", "read meanwhile"), ("read_available_now", "the rest at once")):
        item = document[name]
        rate = f"{item['events_per_second']:,} events/s, {item['megabytes_per_second']} MB/s"
        batches = f"{item['batches']} batches of at most {item['batch_events_max']:,}"
        rows.append((title, f"{item['events']:,} in {item['seconds']} s, {rate}, {batches}"))
    for name in ("lost", "duplicated", "out_of_order", "phantom", "damaged", "split", "unsorted", "over_limit"):
        rows.append((name.replace("_", " "), str(found[name])))
    return rows
