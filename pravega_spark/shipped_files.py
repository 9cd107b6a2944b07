"""Finds the files that come with the package: settings, examples, the program for ``spark-submit``, the jar."""

from __future__ import annotations

import site
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

JAR: Final = "jar"
_MARK: Final = Path("conf") / "segment-store.toml"
_SHARED: Final = Path("share") / "pravega-spark"
_ROOT: Final = Path(__file__).resolve().parents[1]


def shipped_folder() -> Path:
    """The folder that has all of them but the jar: the source tree, or ``share/pravega-spark`` of an installation.

    ``ConfigurationError`` where the package was copied without them.
    """
    for folder in _candidates():
        if (folder / _MARK).is_file():
            return folder
    raise ConfigurationError(
        f"the files that belong to '{_ROOT}' are missing: its modules were copied without share/pravega-spark;"
        " install the package from its wheel"
    )


def shipped_file(name: str) -> Path:
    """A shipped file or folder by its name below the folder, such as ``conf/controller.toml``; ``jar`` is the jar.

    ``ConfigurationError`` for a name that is not there, with those that are.
    """
    if name == JAR:
        from pravega_spark.jvm.jar import jar_path

        return jar_path()
    names = shipped_names()
    if not any(known == name or known.startswith(f"{name}/") for known in names):
        raise ConfigurationError(f"no file '{name}' comes with the package; there are {JAR}, {', '.join(names)}")
    return shipped_folder() / name


def shipped_names() -> list[str]:
    """The names of all shipped files but the jar, sorted."""
    folder = shipped_folder()
    return sorted(path.relative_to(folder).as_posix() for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in (folder / "conf").iterdir() if path.suffix in (".toml", ".conf"))
    yield from (path for path in (folder / "conf" / "deploy").rglob("*") if path.is_file())
    yield folder / "scripts" / "backfill.py"
    yield from (path for path in (folder / "examples").rglob("*.*") if path.suffix in (".py", ".json", ".ipynb"))


def _candidates() -> Iterator[Path]:
    yield _ROOT
    yield _ROOT / _SHARED  # pip install --target
    yield Path(sysconfig.get_path("data")) / _SHARED
    yield Path(site.getuserbase()) / _SHARED
