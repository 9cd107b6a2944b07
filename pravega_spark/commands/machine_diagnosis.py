"""Runs the checks of ``doctor`` on this machine: versions, and the servers that a standalone would start."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pravega_spark.commands.findings import Finding, check
from pravega_spark.standalone.binaries import find_minio, find_redis

python_version_min: Final = (3, 11)
java_version_min: Final = 17
pyarrow_version_min: Final = (18,)
open_files_min: Final = 17_500
"""Files that a segment store of the default settings may have open."""
pyspark_versions: Final = ((4, 0), (4, 3))
"""The first and the last version of Spark that the connector is tested with."""
program_time_max_s: Final = 5.0
"""How long a program may take to tell its version."""


def installed() -> list[Finding]:
    """Checks the versions of what the connector runs on, and the servers that a standalone would start."""
    return [
        check("python", "use Python 3.11 or newer", _python),
        check("pravega-spark", "install it with: pip install pravega-spark", lambda: version("pravega-spark")),
        _optional_if_absent("pyspark", "only who uses Spark needs it: pip install 'pravega-spark[spark]'", _pyspark),
        check(
            "pyarrow", "install it with: pip install 'pyarrow>=18'", lambda: _package("pyarrow", pyarrow_version_min)
        ),
        _optional(
            check("java", f"only Spark needs it: install Java {java_version_min} or newer, or set JAVA_HOME", _java)
        ),
        _optional(
            check(
                "redis",
                "only a standalone needs it: install redis-server, or use --tier1 file",
                lambda: str(find_redis()),
            )
        ),
        _optional(check("open files", _open_files_remedy, _open_files)),
        _optional(check("minio", "only --tier2 minio needs it: put minio on the path", lambda: str(find_minio()))),
    ]


def _optional(finding: Finding) -> Finding:
    return finding if finding.is_ok else Finding(finding.name, None, finding.detail, finding.remedy)


def _python() -> str:
    if sys.version_info < python_version_min:
        raise ValueError(f"{sys.version.split()[0]} is too old")
    return f"{sys.version.split()[0]} ({sys.executable})"


def _optional_if_absent(name: str, remedy: str, look: Callable[[], str]) -> Finding:
    """A package that need not be there; another version of it than is supported is a failure."""
    finding = check(name, remedy, look)
    return _optional(finding) if find_spec(name) is None else finding


def _package(name: str, wanted: tuple[int, ...]) -> str:
    found = version(name)
    if _numbers(found, len(wanted)) < wanted:
        raise ValueError(f"{found} is installed, {'.'.join(map(str, wanted))} or newer is needed")
    return found


def _pyspark() -> str:
    found = version("pyspark")
    first, last = pyspark_versions
    if not first <= _numbers(found, 2) <= last:
        raise ValueError(f"{found} is installed, {first[0]}.{first[1]} to {last[0]}.{last[1]} are supported")
    return found


def _numbers(text: str, count: int) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:count])


_open_files_remedy: Final = "only a standalone needs it: raise ulimit -n; with fewer a store serves fewer connections"


def _open_files() -> str:
    """The limit that a store started from here gets: it raises the soft one to the hard one by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < open_files_min:
        raise ValueError(f"a process may open {hard} files, a store with all its connections needs {open_files_min}")
    return "unlimited" if hard == resource.RLIM_INFINITY else str(hard)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise ValueError("there is no java on the path, and JAVA_HOME is not set")
    answer = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=program_time_max_s, check=False
    ).stderr
    match = re.search(r'version "(\d+)([^"]*)"', answer)
    if match is None:
        raise ValueError(f"{program} does not say its version")
    if int(match[1]) < java_version_min:
        raise ValueError(f"{program} is version {match[1]}{match[2]}, {java_version_min} or newer is needed")
    return f"{match[1]}{match[2]} ({program})"
