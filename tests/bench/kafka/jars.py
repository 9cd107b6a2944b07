"""Fetches the jars of a Kafka broker and of Spark's Kafka connector."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyspark

from tests.support.maven import fetched_jars

FOLDER: Final = Path(__file__).parent
MISSING: Final = "the bench needs Kafka from Maven Central to stand beside (--no-kafka does without)"
_VERSION: Final = re.compile(r"-[0-9][^/]*\.jar$")


def broker_jars() -> Path:
    """The folder; ``NotAvailable`` with what to do when they cannot be had."""
    return fetched_jars(FOLDER / "broker" / "pom.xml", "kafka-broker", MISSING)


def connector_jars() -> list[Path]:
    """Those that PySpark does not bring itself."""
    folder = fetched_jars(FOLDER / "connector" / "pom.xml", "kafka-connector", MISSING)
    shipped = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
    return without_shipped(sorted(folder.glob("*.jar")), shipped)


def without_shipped(jars: Iterable[Path], shipped: Iterable[Path]) -> list[Path]:
    """Two versions of one artifact on a class path are a matter of luck: the shipped one stays."""
    names = {artifact_of(jar) for jar in shipped}
    return [jar for jar in jars if artifact_of(jar) not in names]


def artifact_of(jar: Path) -> str:
    """The name without its version: ``zstd-jni`` of ``zstd-jni-1.5.7-6.jar``."""
    return _VERSION.sub("", jar.name)
