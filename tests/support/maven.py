"""Fetches jars of other servers and connectors with Maven from a ``pom.xml`` of ours, into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Final

copy_dependencies: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
download_attempts_max: Final = 2
download_time_max_s: Final = 900.0


class NotAvailable(RuntimeError):
    """Something that a suite or a bench stands on cannot be had; the text says what to do."""


def fetched_jars(pom: Path, name: str, missing: str) -> Path:
    """The folder with the run-time jars of ``pom``, fetched once for each state of that file.

    ``missing`` begins the sentence that tells who needs them. Raises ``NotAvailable`` when they cannot be had.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pravega-spark"
    folder = cache / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        _fetch(pom, folder, missing)
    return folder


def _fetch(pom: Path, folder: Path, missing: str) -> None:
    program = shutil.which("mvn")
    if program is None:
        raise NotAvailable(
            f"{missing}, and there is no 'mvn' on the path: install Maven (for example: apt-get install maven), "
            f"or put the jars that {pom} names into {folder}"
        )
    partial = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}")
    command = [program, "-B", "-q", "-f", str(pom), copy_dependencies]
    command += [f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    for _ in range(download_attempts_max):
        done = subprocess.run(command, capture_output=True, text=True, timeout=download_time_max_s, check=False)
        if done.returncode == 0:
            break
    else:
        shutil.rmtree(partial, ignore_errors=True)
        raise NotAvailable(
            f"{missing}, and they could not be fetched; when Maven Central can be reached run: "
            f"{' '.join(command[:-2])} -DoutputDirectory={folder} -DincludeScope=runtime\n{done.stdout[-2000:]}"
        )
    try:
        partial.rename(folder)
    except OSError:  # Another run fetched them in the meantime.
        shutil.rmtree(partial)


SHORT_LIVED: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives for a test: the optimising compiler would take more CPU than the test."""


def java() -> str:
    """The Java to run them with; ``NotAvailable`` with what to install."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") or (f"{home}/bin/java" if home else None)
    if found is None:
        raise NotAvailable(
            "Java 17 or newer is missing; install it, for example: apt-get install openjdk-17-jre-headless"
        )
    return found
