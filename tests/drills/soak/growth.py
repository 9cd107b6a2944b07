"""Tells what grows from what only moves up and down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.drills.soak.samples import Sample

grown_share_min: Final = 0.05
"""Of growth between two thirds of a run; less is noise of an allocator, or of the moment of a sample."""
grown_min: Final = 4.0
"""Of whatever else is counted (MiB, KiB, files): less is too little to tell from chance."""
grown_entries_min: Final = 16.0
"""Of the entries of a table: those of epochs that wait for retention come and go by a dozen, over minutes. What a round
leaves behind comes to a hundred at least in a third of half an hour."""
log_kib_min: Final = 2_048.0
"""A table's log is not compacted below 1 MiB (``segment_service/tables``), and its head goes with the next flush."""
KEPT: Final = ("segment-store-0: RSS MiB", "redis: RSS MiB")
"""Sizes that grow with what a process freed and keeps, up to a limit: what it uses has a size of its own."""
samples_min: Final = 9
"""Three of each third."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The medians of one size in the thirds of a run."""

    name: str
    first: float
    middle: float
    last: float
    lowest_middle: float
    lowest_last: float

    @property
    def grows(self) -> bool:
        """Whether both the usual and the least size of the last third are above those of the middle third. What is
        made and freed in turn has a low point that stays."""
        if self.name in KEPT or (self.name.endswith("KiB") and self.last < log_kib_min):
            return False
        least = grown_entries_min if self.name.endswith("entries") else grown_min
        return all(
            after - before >= max(least, before * grown_share_min)
            for before, after in ((self.middle, self.last), (self.lowest_middle, self.lowest_last))
        )


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """One for each size of the last third; what was not there before counts as nothing."""
    third = len(samples) // 3
    first, middle, last = samples[:third], samples[third : 2 * third], samples[2 * third :]
    return [
        Growth(
            name,
            median(sample.get(name, 0.0) for sample in first),
            median(sample.get(name, 0.0) for sample in middle),
            median(sample[name] for sample in last),
            min(sample.get(name, 0.0) for sample in middle),
            min(sample[name] for sample in last),
        )
        for name in samples[-1]
        if all(name in sample for sample in last)
    ]
