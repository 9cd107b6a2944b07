"""Shows the progress of a job: rows, rate and remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

tick_s: Final = 0.5
plain_line_every_s: Final = 10.0
"""Time between two lines where no bar can be drawn (a log)."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job.

    ``rows`` counts this run. ``fraction`` is the share of all work that this and former runs have done; None while it
    is not known. ``doing`` names the step of a job that has several.
    """

    rows: int | None = None
    fraction: float | None = None
    doing: str = ""


class Meter:
    """Computes rate and remaining time from the progress of a run.

    Rich's own estimate forgets what is older than half a minute, but the share of the input that is written moves only
    when a chunk of files is committed.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._first_fraction: float | None = None

    def line(self, progress: JobProgress, now_s: float) -> str:
        elapsed_s = max(now_s - self._start_s, 1e-9)
        parts = [progress.doing] if progress.doing else []
        if progress.fraction is not None:
            parts.append(f"{100 * progress.fraction:5.1f} %")
        if progress.rows is not None:
            parts.append(f"{progress.rows:,} rows, {progress.rows / elapsed_s:,.0f} rows/s")
        remaining_s = self._remaining_s(progress.fraction, elapsed_s)
        if remaining_s is not None:
            parts.append(f"about {duration_text(remaining_s)} left")
        return ", ".join([*parts, f"{duration_text(elapsed_s)} so far"])

    def _remaining_s(self, fraction: float | None, elapsed_s: float) -> float | None:
        if fraction is None:
            return None
        if self._first_fraction is None:
            self._first_fraction = fraction
        gained = fraction - self._first_fraction
        return None if gained <= 0 else elapsed_s * max(0.0, 1 - fraction) / gained


class ChunkProgress:
    """Sums up the progress of a job whose chunks are done one after the other.

    ``sizes`` has the bytes of each chunk; ``of_chunk`` gives the progress of the one that runs. What is shown never
    goes back: between two chunks nothing runs.
    """

    def __init__(self, sizes: Mapping[int, int], of_chunk: Callable[[], JobProgress]) -> None:
        self._weights = {index: max(1, size) for index, size in sizes.items()}
        self._of_chunk = of_chunk
        self._chunk = 0
        self._rows = 0
        self._shown = JobProgress(0, 0.0)

    def begin(self, chunk: int) -> None:
        """All chunks before this one are done, by this run or a former one."""
        self._chunk = chunk

    def wrote(self, rows: int) -> None:
        """The chunk that ran is written."""
        self._rows += rows
        self._chunk += 1

    def now(self) -> JobProgress:
        rows, chunk, running = self._rows, self._chunk, self._of_chunk()
        done = sum(weight for index, weight in self._weights.items() if index < chunk)
        part = self._weights.get(chunk, 0) * (running.fraction or 0.0)
        rows = max(self._shown.rows or 0, rows + (running.rows or 0))
        fraction = max(self._shown.fraction or 0.0, (done + part) / sum(self._weights.values()))
        self._shown = JobProgress(rows, fraction)
        return self._shown


class ProgressDisplay:
    """Shows the progress of a job while it is open: a bar on a terminal, else a line every few seconds.

    Asks for the progress from a thread of its own, which ends with it.
    """

    def __init__(
        self,
        ask: Callable[[], JobProgress],
        console: Console | None = None,
        tick_s: float = tick_s,
        plain_line_every_s: float = plain_line_every_s,
    ) -> None:
        self._ask = ask
        self._console = console or Console(stderr=True)
        self._tick_s = tick_s
        self._plain_line_every_s = plain_line_every_s
        self._meter = Meter(time.monotonic())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backfill-progress", daemon=True)
        # An error's text may have brackets, which are Rich's markup.
        columns = BarColumn(), TextColumn("{task.description}", markup=False)
        self._progress = Progress(*columns, console=self._console, auto_refresh=False)
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._console.is_terminal:
            self._progress.stop()

    def _run(self) -> None:
        shown_s = time.monotonic()
        while not self._stop.wait(self._tick_s):
            now_s = time.monotonic()
            if self._console.is_terminal or now_s - shown_s >= self._plain_line_every_s:
                self._show(now_s)
                shown_s = now_s

    def _show(self, now_s: float) -> None:
        fraction = None
        try:
            progress = self._ask()
            fraction, line = progress.fraction, self._meter.line(progress, now_s)
        except Exception as error:  # Any error: a job does not fail because it cannot be watched.
            line = f"progress is not known: {error}"
        if self._console.is_terminal:
            total = None if fraction is None else 1
            self._progress.update(self._task, description=line, completed=fraction, total=total, refresh=True)
        else:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def progress_of_stages(spark: SparkSession) -> JobProgress:
    """Returns the rows that the running stages have read, by Spark's last reports, and the share of finished tasks."""
    context: Any = spark.sparkContext
    active = context._jsc.sc().statusStore().activeStages()
    stages = [active.apply(index) for index in range(active.size())]
    tasks = sum(stage.numTasks() for stage in stages)
    if not tasks:
        return JobProgress()
    rows = sum(stage.inputRecords() for stage in stages)
    return JobProgress(rows, sum(stage.numCompleteTasks() for stage in stages) / tasks)


def duration_text(seconds: float) -> str:
    """Formats a duration as ``45 s``, ``3 min 20 s`` or ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
