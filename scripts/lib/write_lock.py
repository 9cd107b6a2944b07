"""Writes the list of packages with hashes that scripts/setup installs.

The packages are those of this environment, and those that it would need with the first release of its minor of Python,
which a distribution may have; the hashes come from the package index; nothing is installed. The list is for this minor
of Python on this kind of machine. It names no index, so that any mirror serves.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER: Final = Path(__file__).parents[1] / "requirements"
_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def lock_name() -> str:
    """The name of the list for this interpreter and machine, as scripts/setup looks for it."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}-linux-{platform.machine()}.txt"


def locked_lines(report: Mapping[str, Any]) -> list[str]:
    """The lines of a list, from pip's report of an installation: name, version and hash of each package."""
    lines = []
    for item in report["install"]:
        name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
        lines.append(f"{name}=={version} --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}")
    return sorted(lines)


def report_of(requirements: Sequence[str]) -> Mapping[str, Any]:
    """What pip would install for these; nothing is installed."""
    options = ("--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-")
    done = subprocess.run([*_PIP, "install", *options, *requirements], capture_output=True, text=True, check=True)
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def missing_with_first_release() -> list[str]:
    """Requirements of installed packages that hold with the first release of this minor of Python alone."""
    first = {"python_full_version": f"{sys.version_info.major}.{sys.version_info.minor}.0", "extra": ""}
    environment: dict[str, Any] = {**default_environment(), **first}
    installed = list(importlib.metadata.distributions())
    names = {canonicalize_name(one.metadata["Name"]) for one in installed}
    required = [Requirement(text) for one in installed for text in one.requires or ()]
    held = [one for one in required if one.marker is None or one.marker.evaluate(environment)]
    return sorted({f"{one.name}{one.specifier}" for one in held if canonicalize_name(one.name) not in names})


def main() -> None:
    command = [*_PIP, "freeze", "--all", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = locked_lines(report_of([*frozen.stdout.split(), *missing_with_first_release()]))
    head = "# What scripts/setup installs; written by scripts/lib/write_lock.py."
    (FOLDER / lock_name()).write_text("\n".join((head, *lines)) + "\n")


if __name__ == "__main__":
    main()
