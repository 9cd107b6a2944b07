"""Decides which run of a sink is the present one: pure rules over run ids.

Drivers introduce runs, tasks do not: executors that outlive their driver go on calling, and would displace the run that
took its place. So a run that is known from its tasks alone is only *seen*. The first commit by its driver makes it the
present one, and fences the one before it and all runs that were seen earlier: they are older, also if their
drivers have not called yet.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

runs_kept_max: Final = 16
"""Runs that are remembered of each kind: introduced ones, of which all but the last are fenced, and seen ones."""


@dataclass(frozen=True, slots=True)
class SinkRuns:
    introduced: tuple[str, ...] = ()
    """The present run at the end, before it those that it and others displaced."""
    seen: tuple[str, ...] = ()
    """Runs whose tasks called and whose drivers did not, by their first calls."""

    @property
    def present(self) -> str:
        """The run whose driver was introduced last; empty before the first."""
        return self.introduced[-1] if self.introduced else ""

    def is_displaced(self, run_id: str) -> bool:
        return run_id in self.introduced[:-1]

    def is_live(self, run_id: str) -> bool:
        """Whether the run may still commit, as far as is known: the present one, or one that was seen since."""
        return run_id == self.present or run_id in self.seen

    def seeing(self, run_id: str) -> SinkRuns:
        """The runs after a call by a task: nothing is displaced."""
        if run_id in self.introduced or run_id in self.seen:
            return self
        return dataclasses.replace(self, seen=(*self.seen, run_id)[-runs_kept_max:])

    def introducing(self, run_id: str) -> SinkRuns:
        """The runs after a call by a driver that is not displaced."""
        if run_id == self.present:
            return self
        rank = self.seen.index(run_id) if run_id in self.seen else len(self.seen)
        introduced = (*self.introduced, *self.seen[:rank], run_id)
        return SinkRuns(introduced[-runs_kept_max:], self.seen[rank + 1 :])
