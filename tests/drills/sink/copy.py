"""Describes the query that a driver of the drill runs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Copy:
    """One streaming query from files of numbers into one stream, or, by ``foreachBatch``, into two.

    ``where`` keeps some rows; ``repartition`` shuffles them by key into that many tasks; ``hooked`` puts the failpoints
    of ``hooks`` before the sink; ``spread`` sends rows to both ``targets`` by the column ``stream``. Two ``targets``
    that are the same stream get one half of the keys each. It is begun ``start_after_s`` after it was asked for.
    """

    name: str
    controller: str
    scope: str
    source: str
    targets: tuple[str, ...]
    checkpoint: str
    sink: dict[str, str] = field(default_factory=dict)
    where: str = ""
    repartition: int = 0
    hooked: bool = False
    spread: bool = False
    start_after_s: float = 0.0
