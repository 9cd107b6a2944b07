"""Defines what a check of ``doctor`` finds, and runs checks within limits of time."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from typing import Final

from pravega_common.errors import AccessDenied, PravegaError

check_time_max_s: Final = 6.0
"""How long a check may take. A controller needs up to 3 s to say that the control plane oracle does not answer."""
AS_OPERATOR: Final = "run doctor as an operator, who has the entry prn::*,READ_UPDATE (docs/security.md 4.1)"
probes: Final = 5
"""Round trips of a measurement, which gives their median."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. ``is_ok``: None if it was skipped or is optional; ``remedy`` helps when it failed.
    ``is_unknown``: whether the check could not look, so that it says neither that all is well nor that it is not."""

    name: str
    is_ok: bool | None
    detail: str
    remedy: str = ""
    is_unknown: bool = False


Tell = Callable[[str], None]
"""Notes the step that a check is at, for the finding about one that does not end."""


def check(name: str, remedy: str, look: Callable[[], str]) -> Finding:
    """Runs a check: ``look`` returns what it found, or raises what is wrong.

    What the user may not ask or do is no failure of the cluster.
    """
    try:
        return Finding(name, True, look())
    except AccessDenied as error:
        return not_permitted(name, error)
    except (PravegaError, OSError, PackageNotFoundError, ValueError, subprocess.SubprocessError) as error:
        return Finding(name, False, _text_of(error), remedy)


def not_permitted(name: str, error: AccessDenied) -> Finding:
    return Finding(name, None, f"not permitted to this user: {_text_of(error)}", AS_OPERATOR, is_unknown=True)


def _text_of(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def is_well(findings: Iterable[Finding]) -> bool:
    return all(item.is_ok is not False for item in findings)


class RunningCheck:
    """A check in a thread of its own. Beyond its time nobody waits for it; the process may end meanwhile."""

    def __init__(self, look: Callable[[Tell], Finding], late: Finding, time_max_s: float | None = None) -> None:
        """``late``: the finding of one that does not end in time, to which the time and the last step are added."""
        self._look = look
        self._late = late
        self._time_max_s = check_time_max_s if time_max_s is None else time_max_s
        self._ends_s = time.monotonic() + self._time_max_s
        self._step = ""
        self._found: Finding | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=late.name, daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, name: str, remedy: str, look: Callable[[], str], time_max_s: float | None = None) -> RunningCheck:
        """Starts a check that has one step."""
        return cls(lambda _: check(name, remedy, look), Finding(name, False, "", remedy), time_max_s)

    @property
    def is_late(self) -> bool:
        """Whether ``finding`` gave it up."""
        return self._found is None and self._failure is None

    def finding(self) -> Finding:
        """Waits for its end, no longer than its time."""
        self._thread.join(max(0.0, self._ends_s - time.monotonic()))
        if self._failure is not None:
            raise self._failure
        if self._found is not None:
            return self._found
        late, at = self._late, f", at: {self._step}" if self._step else ""
        return replace(late, detail=f"{late.detail}no end within {self._time_max_s:g} s{at}")

    def _run(self) -> None:
        try:
            self._found = self._look(self._tell)
        except BaseException as error:
            self._failure = error

    def _tell(self, step: str) -> None:
        self._step = step


def median_ms(call: Callable[[], object]) -> float:
    """The time that a call takes."""
    took = []
    for _ in range(probes):
        start_s = time.perf_counter()
        call()
        took.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(took)
