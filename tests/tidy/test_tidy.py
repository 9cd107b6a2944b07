"""Checks the rules of the tree: imports between packages, lengths, calls that are banned.

Reads every source file with ``ast``; nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "pravega_common",
    "pravega_streams",
    "pravega_spark",
    "pyspark_pravega",
    "segment_service",
    "controller_service",
)
MAY_IMPORT = {
    "pravega_common": set(),
    "pravega_streams": {"pravega_common"},
    "pravega_spark": {"pravega_common", "pravega_streams"},
    "pyspark_pravega": {"pravega_spark"},
    "segment_service": {"pravega_common"},
    "controller_service": {"pravega_common", "pravega_streams"},
}
ONLY_IN_SERVICES = {
    "redis",
    "minio",
    "aiohttp",
    "uvloop",
    "prometheus_client",
    "structlog",
    "pydantic",
    "sortedcontainers",
}
EXECUTOR_PACKAGES = ("pravega_streams", "pyspark_pravega")
function_lines_max = 70
file_lines_max = 800


@cache
def sources() -> tuple[Path, ...]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return tuple(path for path in found if "_pb2" not in path.name)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> Iterator[str]:
    """Top-level names of all modules that a file imports, wherever in the file."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_is_below_them(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    wrong = {
        f"{relative(path)} imports {name}"
        for path in sources()
        if relative(path).startswith(f"{package}/")
        for name in imported(path)
        if name in PACKAGES and name not in allowed
    }
    assert not wrong


def test_only_the_connector_imports_pyspark() -> None:
    wrong = [
        relative(path)
        for path in sources()
        if "pyspark" in imported(path) and relative(path).partition("/")[0] not in ("pravega_spark", "pyspark_pravega")
    ]
    assert not wrong


@pytest.mark.parametrize("package", EXECUTOR_PACKAGES)
def test_an_executor_needs_no_service_library(package: str) -> None:
    wrong = {
        f"{relative(path)} imports {name}"
        for path in sources()
        if relative(path).startswith(f"{package}/")
        for name in imported(path)
        if name in ONLY_IN_SERVICES
    }
    assert not wrong


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_functions_are_a_screen_or_less() -> None:
    wrong = {
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in sources()
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > function_lines_max
    }
    assert not wrong


def test_files_have_one_subject() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in sources()}
    assert not {path: count for path, count in lengths.items() if count > file_lines_max}


def test_product_code_checks_with_check_and_not_with_assert() -> None:
    wrong = {
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assert)
    }
    assert not wrong


def calls(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name):
                yield node.lineno, f"{owner.id}.{node.func.attr}"
            else:
                yield node.lineno, node.func.attr


BANNED_IN_SERVICES = {"time.time", "time.monotonic", "time.sleep", "time.time_ns", "asyncio.create_task"}


def test_services_take_time_and_tasks_from_their_owner() -> None:
    wrong = {
        f"{relative(path)}:{line} {name}"
        for path in sources()
        if relative(path).startswith(("segment_service/", "controller_service/"))
        for line, name in calls(path)
        if name in BANNED_IN_SERVICES
    }
    assert not wrong


STARTS_NO_SERVICE = {
    "segment_service/file_log/file_log.py: self": "the log itself, to which its owner listens",
    "segment_service/service.py: self._tier2": "a client of Tier 2; its calls fail, it does not",
    "segment_service/storage/measured_chunks.py: self._inner": "a client of Tier 2, no service",
    "segment_service/maintenance/backup_restore.py: storage": "without anything that works in the background",
    "segment_service/maintenance/store_backup.py: self._copies": "files in a folder; its calls fail, it does not",
    "segment_service/maintenance/tier2_restore.py: storage": "without anything that works in the background",
    "controller_service/api/grpc/streams_api.py: self.parts.workflows.scale": "a workflow",
    "controller_service/workflows/auto_scale.py: self._scale": "a workflow",
    "controller_service/api/grpc/server.py: self._server": "gRPC's own server",
    "controller_service/sets/transaction_set_service.py: self._sinks": "a table, created if it is missing",
    "controller_service/transactions/lifecycle.py: self._ids": "a table, created if it is missing",
    "controller_service/transactions/lifecycle.py: self.records": "a table, created if it is missing",
}


def starts(scope: ast.ClassDef) -> Iterator[str]:
    """The services that the methods of a class start and wait for."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Await):
            for call in ast.walk(node.value):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "start":
                    yield ast.unparse(call.func.value)


def listened_to(scope: ast.ClassDef) -> Iterator[str]:
    """The services whose failure a class listens to."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "on_failure":
                yield ast.unparse(node.func.value)
            elif node.func.attr == "own" and node.args:
                yield ast.unparse(node.args[0])


def test_a_service_is_started_by_a_listener_of_its_failure() -> None:
    wrong = {
        f"{relative(path)}: {name}"
        for path in sources()
        if relative(path).startswith(("segment_service/", "controller_service/"))
        for scope in ast.walk(tree_of(path))
        if isinstance(scope, ast.ClassDef)
        for name in set(starts(scope)) - set(listened_to(scope))
    }
    assert wrong == STARTS_NO_SERVICE.keys()


def test_no_error_is_swallowed() -> None:
    wrong = {
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and len(node.body) == 1
        and isinstance(node.body[0], ast.Pass)
    }
    assert not wrong


def test_concurrent_work_has_ended_before_its_error_is_raised() -> None:
    """A bare ``gather`` leaves the rest running behind an error: ``all_ended`` and ``both_ended`` wait for it."""
    wrong = {
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "gather"
        and not any(given.arg == "return_exceptions" for given in node.keywords)
    }
    assert not wrong


def test_the_default_of_anext_is_no_tuple() -> None:
    """CPython 3.11 answers the end of the items with SystemError instead of such a default."""
    wrong = {
        f"{relative(path)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "anext"
        if any(isinstance(argument, ast.Tuple) for argument in node.args[1:])
    }
    assert not wrong


def test_every_folder_with_code_has_a_readme() -> None:
    folders = {path.parent for path in sources()}
    # A package with nothing but its own marker has nothing to explain yet.
    with_code = {folder for folder in folders if len(list(folder.glob("*.py"))) > 1}
    assert not {relative(folder) for folder in with_code if not (folder / "README.md").exists()}
