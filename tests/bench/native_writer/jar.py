"""Builds the jar of the prototype with ``javac``, against PySpark's own jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pyspark

SOURCES: Final = Path(__file__).parent / "java"
compile_time_max_s: Final = 120


def built_jar(folder: Path) -> Path:
    """The jar in ``folder``; ``SystemExit`` with what javac says when it cannot be built."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise SystemExit("the native writer needs javac of a JDK of version 17 or newer on the path")
    classes = folder / "classes"
    shipped = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    command = [compiler, "--release", "17", "-proc:none", "-encoding", "UTF-8", "-d", str(classes)]
    command += ["-cp", os.pathsep.join(map(str, shipped)), *map(str, sorted(SOURCES.rglob("*.java")))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=compile_time_max_s, check=False)
    if done.returncode != 0:
        raise SystemExit(f"javac failed:\n{done.stderr}")
    jar = folder / "native-writer.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, str(path.relative_to(classes)))
    return jar
