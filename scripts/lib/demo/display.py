"""Shows a progress bar while the demo works, and a table at the end."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.compare import Comparison


@dataclass
class Figures:
    """The measurements of a run. The rate of writing is over the time of the last driver's micro-batches."""

    lines: int
    input_bytes: int
    write_lines: int
    write_seconds: float
    read_seconds: float
    counted: int
    tier2: str


class DemoDisplay:
    """The demo's output: messages, bars and the closing table."""

    def __init__(self) -> None:
        self.console = Console()
        self._progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )

    def __enter__(self) -> DemoDisplay:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def bars(self, lines: int) -> None:
        self._written = self._progress.add_task("written to the stream", total=lines)
        self._counted = self._progress.add_task("counted from it", total=lines)

    def update(self, written: int, counted: int) -> None:
        self._progress.update(self._written, completed=written)
        self._progress.update(self._counted, completed=counted)

    def say(self, text: str) -> None:
        self.console.print(f"[bold cyan]demo[/] {text}", highlight=False)

    def result(self, figures: Figures, comparison: Comparison) -> None:
        megabytes = figures.input_bytes / 1e6
        table = Table(title="What came back from the stream", show_header=False)
        rows = {
            "lines in, events out": f"{figures.lines:,} in, {comparison.events:,} out ({megabytes:.1f} MB of text)",
            "lost": comparison.lost,
            "duplicated": comparison.duplicated,
            "out of order": comparison.out_of_order,
            "not from the input": comparison.phantom,
            "files equal byte for byte": f"{comparison.files_equal} of {comparison.files}",
            "counted by the second query": f"{figures.counted:,}",
            "killed on the way": "segment store, Spark driver",
            "write": _rate(figures.write_lines, megabytes * figures.write_lines / figures.lines, figures.write_seconds),
            "read back (batch, with JVM start)": _rate(figures.lines, megabytes, figures.read_seconds),
            "long-term storage": figures.tier2,
        }
        for name, value in rows.items():
            table.add_row(name, str(value))
        self.console.print(table)
        verdict = "[bold green]exactly once: held" if comparison.holds else "[bold red]exactly once: BROKEN"
        self.console.print(verdict)


def _rate(events: int, megabytes: float, seconds: float) -> str:
    if seconds <= 0:
        return "not measured"
    return f"{events / seconds:,.0f} events/s, {megabytes / seconds:.1f} MB/s"
