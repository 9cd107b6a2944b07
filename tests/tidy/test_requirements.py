"""Checks the lists of requirements in ``setup.cfg`` against the imports, in both directions."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.test_tidy import PACKAGES, ROOT

OURS: Final = {*PACKAGES, "tests", "demo", "sample"}
MODULE_OF: Final = {
    "confluent-kafka": "confluent_kafka",
    "grpcio": "grpc",
    "prometheus-client": "prometheus_client",
    "protobuf": "google",
    "PyJWT": "jwt",
    "pravega": "pravega_client",
    "pydantic-settings": "pydantic_settings",
}
"""The top-level module of a distribution whose name differs from it."""
NOT_IMPORTED: Final = {
    "pytest-asyncio": "a plugin: runs the coroutines among the tests (asyncio_mode in setup.cfg)",
    "pytest-xdist": "a plugin: scripts/test runs the tests in several processes",
    "pytest-timeout": "a plugin: --timeout in setup.cfg",
    "pandas": "comes with pyspark[connect]; PySpark warns of pandas 3 in every session",
    "setuptools": "builds the wheel that is tested, in a process of its own; older ones need another package for it",
    "ruff": "a program: scripts/check",
    "mypy": "a program: scripts/check",
    "grpc-stubs": "read by mypy",
    "types-protobuf": "read by mypy",
}
THROUGH_OTHERS: Final = {"hiredis": "redis[hiredis]", "py4j": "pyspark[connect]"}
"""Modules that are imported, and the requirement that brings them along."""
FOLDERS: Final = {
    "install_requires": PACKAGES,
    "spark": PACKAGES,
    "cli": PACKAGES,
    "services": PACKAGES,
    "rocksdb": PACKAGES,
    "versions_test": ("tests",),
    "python_test": ("tests",),
    "test": ("tests",),
    "dev": ("scripts", "tests"),
}
"""The folders that import what a list requires."""


def requirement_lists() -> Mapping[str, tuple[str, ...]]:
    """The requirements without their versions, by the name of the list."""
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    lists = {"install_requires": read["options"]["install_requires"], **read["options.extras_require"]}
    return {
        name: tuple(re.split(r"[<>=!~ ]", line)[0] for line in text.split("\n") if line.strip())
        for name, text in lists.items()
    }


def distribution_of(requirement: str) -> str:
    return requirement.partition("[")[0]


def module_of(requirement: str) -> str:
    return MODULE_OF.get(distribution_of(requirement), distribution_of(requirement).lower())


@cache
def imports_below(folder: str) -> frozenset[str]:
    """Top-level modules that the files of a folder import, and that neither Python nor this repository has."""
    found = {name for path in (ROOT / folder).rglob("*.py") for name in imported_by(path)}
    return frozenset(found - set(sys.stdlib_module_names) - OURS)


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_requirement_is_imported(name: str) -> None:
    imports = {module for folder in FOLDERS[name] for module in imports_below(folder)}
    unused = {
        item
        for item in requirement_lists()[name]
        if distribution_of(item) not in {"pravega-spark", *NOT_IMPORTED} and module_of(item) not in imports
    }
    assert not unused


def test_every_list_is_checked_and_every_exception_is_needed() -> None:
    lists = requirement_lists()
    required = {item for items in lists.values() for item in items}
    assert lists.keys() == FOLDERS.keys()
    assert {distribution_of(item) for item in required} >= {*MODULE_OF, *NOT_IMPORTED}
    assert required >= set(THROUGH_OTHERS.values())


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (PACKAGES, ("install_requires", "spark", "cli", "services", "rocksdb")),
        (("tests", "scripts", "examples"), tuple(FOLDERS)),
    ],
)
def test_every_import_is_required(folders: tuple[str, ...], names: tuple[str, ...]) -> None:
    lists = requirement_lists()
    known = {module_of(item) for name in names for item in lists[name]}
    known |= {module for module, item in THROUGH_OTHERS.items() if any(item in lists[name] for name in names)}
    missing = {module for folder in folders for module in imports_below(folder)} - known
    assert not missing


def test_generated_stubs_run_with_the_oldest_versions_that_are_allowed() -> None:
    """Stubs refuse an older protobuf or grpcio than that of their generator (`scripts/gen-proto`)."""
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    least = dict(re.findall(r"(protobuf|grpcio)>=([\d.]+)", read["options"]["install_requires"]))
    folder = ROOT / "pravega_common" / "proto"
    for path in folder.glob("*_pb2.py"):
        assert f"# Protobuf Python Version: {least['protobuf']}\n" in path.read_text(), path.name
    for path in folder.glob("*_pb2_grpc.py"):
        assert f"GRPC_GENERATED_VERSION = '{least['grpcio']}'\n" in path.read_text(), path.name
