"""Reports progress while the drill runs, and the table at its end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drills.sink.run_matrix import Row

plain_width = 140
"""Characters of a line where the output is no terminal."""


class Report:
    def __init__(self, json_file: Path | None) -> None:
        self.console = Console() if sys.stdout.isatty() else Console(width=plain_width)
        self._json_file = json_file
        self._started_s = time.monotonic()

    def tell(self, rows: list[Row], row: Row, done: int, total: int) -> None:
        """One line a run, with the time that is left; the file is written each time."""
        each_s = (time.monotonic() - self._started_s) / done
        left_min = each_s * (total - done) / 60
        state = "ok" if row.good else "[bold red]BAD[/]"
        mean_s = row.seconds / row.runs
        self.console.print(
            f"{done}/{total} {row.point:<28} {state}  {row.runs} runs, {mean_s:.1f} s each, {left_min:.0f} min left",
            highlight=False,
        )
        for failure in row.failures[-1:] if not row.good else []:
            self.console.print(failure, markup=False, highlight=False)
        self._keep(rows)

    def _keep(self, rows: Sequence[Row]) -> None:
        if self._json_file is not None:
            self._json_file.write_text(json.dumps([row.as_json() for row in rows], indent=1))

    def table(self, rows: Sequence[Row], title: str) -> None:
        table = Table(title=title)
        table.add_column("point", no_wrap=True)
        table.add_column("what happens")
        for name in ("runs", "lost", "duplicated", "out of order", "not as told", "s a run"):
            table.add_column(name, justify="right")
        for row in rows:
            counted = row.tally
            mean_s = f"{row.seconds / max(row.runs, 1):.1f}"
            numbers = (
                row.runs,
                counted.lost,
                counted.duplicated,
                counted.out_of_order,
                len(row.failures) + counted.phantom,
            )
            table.add_row(row.point, row.what, *map(str, numbers), mean_s, style="" if row.good else "bold red")
        self.console.print(table)
