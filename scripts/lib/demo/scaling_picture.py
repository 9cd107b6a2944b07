"""Draws a stream that scales: the rate over time, the number of segments, and how they share the key space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from pravega_common.model.segments import SegmentRange

chart_columns = 56
key_columns = 56
epochs_shown_max = 24
_BARS = " ▁▂▃▄▅▆▇█"
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


@dataclass(frozen=True)
class Sample:
    """One look at the load and the stream."""

    seconds: float
    rate: float
    """Events a second since the look before."""
    segments: int


@dataclass
class ScalingPicture:
    """Everything seen so far, drawn anew at each look."""

    target: int
    samples: list[Sample] = field(default_factory=list)
    epochs: list[tuple[float, tuple[SegmentRange, ...]]] = field(default_factory=list)

    def see(self, seconds: float, rate: float, segments: Sequence[SegmentRange]) -> None:
        found = tuple(sorted(segments, key=lambda segment: segment.key_low))
        self.samples.append(Sample(seconds, rate, len(found)))
        if not self.epochs or self.epochs[-1][1] != found:
            self.epochs.append((seconds, found))

    def __rich__(self) -> RenderableType:
        rate = Panel(Text("\n").join(self._chart()), title="rate over time", title_align="left")
        keys = Panel(Text("\n").join(self._strips()), title="segments over the key space", title_align="left")
        return Group(rate, keys)

    def _chart(self) -> list[Text]:
        if not self.samples:
            return [Text("nothing yet")]
        seconds = self.samples[-1].seconds
        columns = self._columns(seconds)
        rates = [max((sample.rate for sample in column), default=0.0) for column in columns]
        counts = [max((sample.segments for sample in column), default=0) for column in columns]
        top = max(*rates, float(self.target), 1.0)
        bars = "".join(_BARS[round(rate / top * (len(_BARS) - 1))] for rate in rates)
        digits = "".join(str(count) if 0 < count < 10 else "+" if count else " " for count in counts)
        present = self.samples[-1]
        return [
            Text.assemble(("events/s  ", "dim"), (bars, "green"), f" {present.rate:,.0f}"),
            Text.assemble(("segments  ", "dim"), (digits, "bold"), f" {present.segments}"),
            Text(f"          0 s{f'{seconds:.0f} s':>{chart_columns - 3}}", style="dim"),
            Text(
                f"          peak {max(rates):,.0f} events/s; the policy wants {self.target} for each segment",
                style="dim",
            ),
        ]

    def _columns(self, seconds: float) -> list[list[Sample]]:
        """The samples of each column; one without any repeats the one before, so that the line has no holes."""
        columns: list[list[Sample]] = [[] for _ in range(chart_columns)]
        for sample in self.samples:
            place = int(sample.seconds / max(seconds, 1e-9) * (chart_columns - 1))
            columns[place].append(sample)
        for before, column in pairwise(columns):
            column.extend(before[-1:] if not column else [])
        return columns

    def _strips(self) -> list[Text]:
        """One strip an epoch, the newest at the bottom."""
        left_out = len(self.epochs) - epochs_shown_max
        lines = [Text(f"  … {left_out} earlier", style="dim")] if left_out > 0 else []
        lines += [_strip(seconds, segments) for seconds, segments in self.epochs[-epochs_shown_max:]]
        return [*lines, Text(f"          0{'1':>{key_columns - 1}}", style="dim")]


def _strip(seconds: float, segments: Sequence[SegmentRange]) -> Text:
    line = Text(f"{seconds:7.1f} s ", style="dim")
    for segment in segments:
        start, end = round(segment.key_low * key_columns), round(segment.key_high * key_columns)
        number = segment.segment_id & 0xFFFFFFFF
        label = str(number).center(end - start)[: end - start]
        line.append(label, style=f"black on {_COLOURS[number % len(_COLOURS)]}")
    line.append(f"  {len(segments)}", style="bold")
    return line
