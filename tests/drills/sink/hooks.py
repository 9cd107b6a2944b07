"""Provides failpoints of the drill's own queries, for moments at which no code of the connector runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pyarrow as pa

from pravega_common.runtime.failpoints import arm_from_environment, failpoint, register

BEFORE_ROWS = register("drill.task.before_rows")
"""A task has begun, the offset log holds the batch, the sink has not seen a row."""
AMID_ROWS = register("drill.task.amid_rows")
"""Half of the rows of the task are with the sink."""
BETWEEN_WRITES = register("drill.foreach.between_writes")
"""One of the two writes of a ``foreachBatch`` is done."""


@cache
def armed() -> None:
    """Once in each process."""
    arm_from_environment()


def pass_through(scope: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The rows unchanged, with the failpoints of a task that writes to ``scope`` between them."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        armed()
        failpoint(BEFORE_ROWS, scope)
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            failpoint(AMID_ROWS, scope)
            yield batch.slice(half)

    return passing
