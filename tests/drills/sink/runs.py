"""Describes one run of a point, and the failpoints armed for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from tests.drills.sink.copy import Copy

Choice = TypeVar("Choice")


@dataclass
class Run:
    """Its own scope, streams, checkpoint and query; ``expected`` says what has to be in which stream."""

    point: str
    seed: int
    copies: tuple[Copy, ...]
    expected: dict[str, list[int]] = field(default_factory=dict)

    @property
    def copy(self) -> Copy:
        return self.copies[0]

    @property
    def scope(self) -> str:
        return self.copy.scope

    @property
    def target(self) -> str:
        return self.copy.targets[0]

    @property
    def checkpoint(self) -> Path:
        return Path(self.copy.checkpoint)

    @property
    def random(self) -> random.Random:
        return random.Random(f"{self.point}/{self.seed}")

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """Each in its turn, so that some runs have them all."""
        return choices[self.seed % len(choices)]

    def change(self, **what: Any) -> None:
        """Ask the same of its queries, but for this."""
        self.copies = tuple(replace(copy, **what) for copy in self.copies)


@dataclass(frozen=True)
class Armed:
    """The step and the hit at which something happens to a run, and the process that came there, when it has."""

    run: Run
    step: str
    hit: int
    pid: int = 0


def copies_of(runs: Sequence[Run]) -> list[Copy]:
    return [copy for run in runs for copy in run.copies]
