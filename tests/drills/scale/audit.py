"""Compares the rows that were read with those written: with NumPy, in the order of reading, without Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as parquet

from tests.drills.scale.plan import Plan

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Findings:
    """Counts of events. All but the first three, and ``segments``, must be 0."""

    events: int = 0
    batches: int = 0
    batch_events_max: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    """Behind a later one of their key."""
    phantom: int = 0
    """With a number that nobody wrote."""
    damaged: int = 0
    """With other bytes behind the number."""
    split: int = 0
    """Rows of a key that one batch has in two segments: a segment and its successor must not meet in a batch."""
    unsorted: int = 0
    """At a smaller offset than the row before them, of the same segment in the same task."""
    over_limit: int = 0
    """Batches with more events than the limit."""
    segments: list[int] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        wrong = (self.lost, self.duplicated, self.out_of_order, self.phantom, self.damaged, self.split, self.unsorted)
        return not any(wrong) and not self.over_limit

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "exact": self.exact}


@dataclass(frozen=True)
class _Rows:
    number: Numbers
    segment: Numbers
    offset: Numbers
    batch: Numbers
    damaged: int
    unsorted: int


def audit(folder: Path, plan: Plan) -> Findings:
    """``folder``: of ``Job``, ``batch=<id>/*.parquet`` with ``number``, ``is_whole``, ``segment_id``, ``offset``."""
    rows = _loaded(folder)
    known = (rows.number >= 0) & (rows.number < plan.events)
    times = np.bincount(rows.number[known], minlength=plan.events)
    in_batch = np.bincount(rows.batch)
    out_of_order, split = _by_key(rows, plan.keys)
    return Findings(
        events=len(rows.number),
        batches=int(np.count_nonzero(in_batch)),
        batch_events_max=int(in_batch.max(initial=0)),
        lost=int(np.count_nonzero(times == 0)),
        duplicated=int((times[times > 1] - 1).sum()),
        out_of_order=out_of_order,
        phantom=int(np.count_nonzero(~known)),
        damaged=rows.damaged,
        split=split,
        unsorted=rows.unsorted,
        over_limit=int(np.count_nonzero(in_batch > plan.events_per_trigger)),
        segments=[int(item) for item in np.unique(rows.segment)],
    )


def _by_key(rows: _Rows, keys: int) -> tuple[int, int]:
    """Counts neighbours in the order of reading within a key: those that go down, those that share only their batch.

    A key has one segment within a batch (else it counts as split), so its rows are in the order of their offsets.
    """
    key = rows.number % keys
    order = np.lexsort((rows.offset, rows.segment, rows.batch, key))
    same = np.diff(key[order]) == 0
    down = np.diff(rows.number[order]) < 0
    moved = (np.diff(rows.batch[order]) == 0) & (np.diff(rows.segment[order]) != 0)
    return int(np.count_nonzero(same & down)), int(np.count_nonzero(same & moved))


def _loaded(folder: Path) -> _Rows:
    number, segment, offset, batch = [], [], [], []
    damaged = unsorted = 0
    for part in sorted(folder.glob("batch=*/*.parquet")):
        table = parquet.ParquetFile(part).read()
        found: dict[str, Numbers] = {name: table.column(name).to_numpy() for name in ("number", "segment_id", "offset")}
        number.append(found["number"])
        segment.append(found["segment_id"])
        offset.append(found["offset"])
        batch.append(np.full(table.num_rows, int(part.parent.name.removeprefix("batch=")), dtype=np.int64))
        damaged += int(np.count_nonzero(~table.column("is_whole").to_numpy()))
        same = np.diff(found["segment_id"]) == 0
        unsorted += int(np.count_nonzero(same & (np.diff(found["offset"]) <= 0)))
    return _Rows(_joined(number), _joined(segment), _joined(offset), _joined(batch), damaged, unsorted)


def _joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
