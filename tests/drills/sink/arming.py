"""Arms the failpoints of other processes, at any time, one hit at a time (``take:`` in ``failpoints``)."""

from __future__ import annotations

from pathlib import Path

from pravega_common.runtime.failpoints import environment_of


class Failpoints:
    """``scope`` restricts a hit to what writes there; without it any hit is meant."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def environment(self, names: set[str]) -> dict[str, str]:
        """The environment in which a process obeys."""
        return environment_of(",".join(f"{name}=take:{self._folder / name}" for name in sorted(names)))

    def arm(self, name: str, action: str, hit: int = 1, scope: str = "", counted: int = 0) -> None:
        """At its ``hit``-th time from now on, in whatever process; ``taken_by`` knows of the first ``counted`` hits."""
        prefix = _prefix(name, scope)
        for number in range(1, max(hit, counted) + 1):
            file = self._folder / f".{prefix}.{number}"
            file.write_text(action if number == hit else "pass")
            file.rename(self._folder / f"{prefix}.{number}")

    def taken_by(self, name: str, hit: int = 1, scope: str = "") -> int:
        """The process that came to the hit; 0 if none did yet."""
        found = self._taken(name, hit, scope)
        return int(found[0].name.rpartition(".")[2]) if found else 0

    def release(self, name: str, hit: int = 1, scope: str = "") -> None:
        """Let go on what is held at the hit."""
        for file in self._taken(name, hit, scope):
            file.unlink(missing_ok=True)

    def disarm(self) -> None:
        """Disarms all points, and lets held hits go on."""
        for file in self._folder.iterdir():
            file.unlink(missing_ok=True)

    def _taken(self, name: str, hit: int, scope: str) -> list[Path]:
        return list(self._folder.glob(f"{_prefix(name, scope)}.{hit}.taken.*"))


def _prefix(name: str, scope: str) -> str:
    return f"{name}@{scope}" if scope else name
